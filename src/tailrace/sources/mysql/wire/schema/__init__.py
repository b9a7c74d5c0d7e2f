"""What the log says of a table: its columns, their types and character sets."""
