"""Found by Spark by its name: makes `format("tailrace")` work without registration."""

from tailrace.spark.source import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
