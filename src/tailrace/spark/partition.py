"""A task's input partition: one split."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from tailrace.model.split import Split


@dataclass
class SplitPartition(InputPartition):
    """A split as Spark's input partition."""

    split: Split
