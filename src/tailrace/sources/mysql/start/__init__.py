"""Where a stream starts, and where it continues on another server."""
