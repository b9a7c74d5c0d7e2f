"""What the decoders of both databases share: rows of the log into batches of changes."""
