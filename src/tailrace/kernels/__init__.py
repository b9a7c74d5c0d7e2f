"""Compiled kernels that sources and formats share: raw memory and the writing of text."""
