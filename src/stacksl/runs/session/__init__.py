"""A run that is open."""
