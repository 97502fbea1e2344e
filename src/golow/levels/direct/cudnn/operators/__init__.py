"""How the level implements each operator: one file each, found by listing this folder."""
