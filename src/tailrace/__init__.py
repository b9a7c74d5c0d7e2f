"""Tailrace: change data capture as a native Spark Structured Streaming source."""

__version__ = "0.1.0"
