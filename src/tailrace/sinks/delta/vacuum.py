"""VACUUM: deletes the files that no version within the retention names."""

from __future__ import annotations

from tailrace.sinks.delta.table import DeltaTable

#: VACUUM lists a table's files in so many tasks, twice, however few files there are.
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
#: Spark's default takes a minute on two cores.
_DEFAULT = "10000"
_UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


def vacuum(table: DeltaTable, hours: int | None = None) -> None:
    """Delete the files that no longer belong to a table.

    Args:
        table: the table.
        hours: how long a file is kept that no version needs; None: as the table's properties say.
    """
    session = table.session
    if session.conf.get(_LISTING_TASKS) == _DEFAULT:
        session.conf.set(_LISTING_TASKS, 4 * session.sparkContext.defaultParallelism)
    retained = ""
    if hours is not None:
        # The pipeline alone writes to its tables, so it may choose a short retention.
        session.conf.set(_UNCHECKED, "false")
        retained = f" RETAIN {hours} HOURS"
    session.sql(f"VACUUM {table.sql}{retained}")
