"""The database of the control plane."""
