"""Comparison of source and target at one log position, exact while both are written to."""
