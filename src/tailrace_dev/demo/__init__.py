"""A busy shop on a real MySQL or PostgreSQL, replicated into Delta tables, killed on the way, verified."""
