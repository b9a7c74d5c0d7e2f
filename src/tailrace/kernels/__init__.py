"""Compiled kernels shared by sources and formats: raw memory and the writing of text."""
