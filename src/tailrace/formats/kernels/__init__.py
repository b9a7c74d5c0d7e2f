"""Compiled kernels of the formats: Arrow buffers in, messages out."""
