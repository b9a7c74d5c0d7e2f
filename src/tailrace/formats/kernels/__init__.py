"""Compiled kernels of the formats, which convert Arrow buffers to messages."""
