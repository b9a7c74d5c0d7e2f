"""Events that are rare enough for Python: statements, XA, payloads, partial updates."""
