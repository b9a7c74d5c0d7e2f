"""What a PostgreSQL server makes a stream wait for, and what is said meanwhile."""
