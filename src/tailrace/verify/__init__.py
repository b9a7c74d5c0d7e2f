"""Source against target at one log position, exact while both are written to."""
