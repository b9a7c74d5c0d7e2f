"""A busy shop on a real MySQL or PostgreSQL, into Delta tables, killed on the way, proved equal."""
