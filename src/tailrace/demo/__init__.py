"""A busy shop on a real MySQL, replicated to Delta tables, killed on the way, and proved equal."""
