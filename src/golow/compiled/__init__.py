"""A module's plan as a callable in the user's own program."""
