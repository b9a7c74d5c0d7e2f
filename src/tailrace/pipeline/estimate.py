"""What a first snapshot will take: rows, bytes, time, and the log that the server must keep meanwhile.

Rows are the catalog's estimates. Bytes and speed are measured: for some seconds, tables are read as a
snapshot reads them, the largest first, over one connection. A snapshot reads over several, so its time lies
between that of one connection and the share of each of several. What the sink takes is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sources import registry
from tailrace.sources.base import CapturedTable, LogRetention, Source

#: Rows of one SELECT of a measurement.
PAGE_ROWS = 20_000
#: Most connections that a snapshot's time is estimated for.
_MOST_CONNECTIONS = 8


@dataclass(frozen=True)
class TableEstimate:
    """One table.

    Args:
        table: the table.
        rows: the catalog's estimate of its rows.
        row_bytes: mean bytes of a row in memory; None: it was not measured.
    """

    table: TableId
    rows: int
    row_bytes: float | None


@dataclass(frozen=True)
class Estimate:
    """A first snapshot.

    Args:
        tables: the captured tables, the largest first.
        rows_per_s: what one connection reads; None: there were no rows.
        connections: how many a snapshot reads over.
        log_bytes_per_s: the rate at which the log grows now; None: it is not known.
        retention: how long the server keeps the log that is written from now on; None: not known.
    """

    tables: Sequence[TableEstimate]
    rows_per_s: float | None
    connections: int
    log_bytes_per_s: float | None
    retention: LogRetention | None

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def bytes(self) -> int | None:
        """Bytes of all rows in memory: tables that were not measured have rows of the mean size."""
        known = [t for t in self.tables if t.row_bytes is not None]
        if not known:
            return None
        rows = sum(t.rows for t in known)
        sizes = [t.row_bytes * t.rows for t in known if t.row_bytes is not None]
        mean = sum(sizes) / rows if rows else 0.0
        return round(sum(t.rows * (mean if t.row_bytes is None else t.row_bytes) for t in self.tables))

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The least and the most time that reading takes."""
        if not self.rows_per_s:
            return None
        longest = self.rows / self.rows_per_s
        return longest / self.connections, longest

    @property
    def log_bytes(self) -> int | None:
        """Log that is written while all rows are read, at most; the server must keep it."""
        if self.seconds is None or self.log_bytes_per_s is None:
            return None
        return round(self.seconds[1] * self.log_bytes_per_s)

    @property
    def log_s(self) -> float | None:
        """How long the server keeps the log that is written from now on; None: for ever, or not known."""
        return None if self.retention is None else self.retention.seconds(self.log_bytes_per_s)

    @property
    def loses_log(self) -> bool:
        """Whether the server may remove log before the snapshot has read it."""
        return self.seconds is not None and self.log_s is not None and self.seconds[1] > self.log_s

    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON values; what is not known is null."""
        return {
            "tables": [
                {"table": str(t.table), "rows": t.rows, "row_bytes": t.row_bytes} for t in self.tables
            ],
            "rows": self.rows,
            "bytes": self.bytes,
            "rows_per_s": self.rows_per_s,
            "connections": self.connections,
            "seconds": None if self.seconds is None else list(self.seconds),
            "log": {
                "bytes_per_s": self.log_bytes_per_s,
                "bytes": self.log_bytes,
                "kept_s": self.log_s,
                "limits": dict(self.limits),
            },
        }

    @property
    def limits(self) -> Mapping[str, str]:
        """The server's settings that limit how long it keeps its log."""
        return {} if self.retention is None else self.retention.limits


def estimate(
    options: SourceOptions,
    connections: int,
    *,
    seconds: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
) -> Estimate:
    """Measure a source.

    Args:
        options: the source's options.
        connections: how many a snapshot reads over.
        seconds: how long to measure.
        clock: monotonic seconds.

    Raises:
        ConfigError: no table is captured.
        TailraceError: an error of the source.
    """
    with closing(registry.source(options)) as source:
        captured = [t for t in source.tables() if options.reads_rows_of(str(t.schema.id))]
        tables = sorted(captured, key=lambda t: -t.estimated_rows)
        if not tables:
            raise ConfigError(
                "no table is captured",
                f"no table matches {', '.join(f'`{p}`' for p in options.tables)}",
                "each pattern must match a whole `database.table`; a dot matches any character",
                code="TR-1401",
            )
        begun_s, before = clock(), _retention(source)
        found, rows = [], 0
        for table in tables:
            measured = _measured(source, table, begun_s + seconds, clock)
            rows += measured[0]
            found.append(_estimated(table, *measured))
        took_s = clock() - begun_s
        time.sleep(max(0.0, begun_s + seconds - clock()))
        after, passed_s = _retention(source), clock() - begun_s
    grown = None if before is None or after is None else max(after.written - before.written, 0)
    return Estimate(
        found,
        rows / took_s if rows else None,
        max(1, min(connections, _MOST_CONNECTIONS)),
        None if grown is None or passed_s <= 0 else grown / passed_s,
        after,
    )


def _retention(source: Source) -> LogRetention | None:
    return source.log_retention(source.log_end())


def _measured(
    source: Source, table: CapturedTable, until_s: float, clock: Callable[[], float]
) -> tuple[int, int]:
    """Rows and bytes that were read of a table before the time was up."""
    rows = size = 0
    for page in source.read_table(table.schema, PAGE_ROWS) if clock() < until_s else ():
        rows, size = rows + len(page.rows), size + page.rows.nbytes
        if clock() >= until_s:
            break
    return rows, size


def _estimated(table: CapturedTable, rows: int, size: int) -> TableEstimate:
    # a catalog's estimate may lag behind what was read
    return TableEstimate(table.schema.id, max(table.estimated_rows, rows), size / rows if rows else None)


def lines(found: Estimate) -> Iterator[str]:
    """The estimate as text."""
    yield f"{len(found.tables)} tables, about {_number(found.rows)} rows, {_size(found.bytes)} in memory"
    for table in found.tables:
        size = None if table.row_bytes is None else round(table.row_bytes * table.rows)
        yield f"  {table.table}: about {_number(table.rows)} rows, {_size(size)}"
    if found.seconds is None or found.rows_per_s is None:
        yield "no rows to read"
        return
    shortest, longest = found.seconds
    yield (
        f"reading takes {_time(shortest)} to {_time(longest)}: one connection reads "
        f"{_number(round(found.rows_per_s))} rows/s, up to {found.connections} read; the sink may be slower"
    )
    if found.log_bytes_per_s is None:
        yield "the log's growth is not known"
    else:
        yield (
            f"the log grows by {_size(round(found.log_bytes_per_s))}/s: up to {_size(found.log_bytes)} "
            "while rows are read"
        )
    limits = ", ".join(f"{name} = {value}" for name, value in found.limits.items())
    kept = "for ever" if found.log_s is None else f"for {_time(found.log_s)}"
    yield f"the server keeps its log {kept}" + (f" ({limits})" if limits else "")
    if found.loses_log:
        yield "warning: the log may be gone before the snapshot has read it; have the server keep it longer"


def _number(count: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def _size(count: int | None) -> str:
    if count is None:
        return "size not known"
    for size, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{max(seconds, 0.1):.2g} s" if seconds < 10 else f"{seconds:.0f} s"
