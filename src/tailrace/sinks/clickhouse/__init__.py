"""Tables of a ClickHouse server, kept equal to tables of the source."""
