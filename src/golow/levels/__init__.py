"""The ladder of levels, what a level is, and how its worker is started."""
