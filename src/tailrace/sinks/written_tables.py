"""The tables that a stream has written: tells a target that is gone from one that is new.

    <checkpoint>/_tailrace/written.json    {"v": 1, "tables": {"shop.orders": 0}}    by table: its first batch

A sink creates a target when the first rows of a table come. Where earlier batches have brought rows of that
table, the new target lacks them: somebody has dropped the former one, or the pipeline has another sink, path
or route since. The table is then read again, in place (docs/design/0006-reading-tables-again.md).

The file is written when a batch is in all sinks. A batch that comes again creates its targets as it did the
first time, and requests the same: the id of a request is made of the batch and the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

from tailrace.errors import StateError
from tailrace.model.table import TableId
from tailrace.spark.checkpoint import Directory
from tailrace.spark.requests import RequestDirectory

_FILE = "written.json"
_VERSION = 1


class WrittenTables:
    """The tables that a stream has written.

    Args:
        checkpoint: Spark's `checkpointLocation`.
        requests: the directory of requests to the stream.
        on_notice: receives what the user should know.
    """

    def __init__(self, checkpoint: str, requests: str, on_notice: Callable[[str], None]) -> None:
        self._path = f"{checkpoint.rstrip('/')}/_tailrace"
        self._directory = Directory(self._path, private=True)
        self._requests = RequestDirectory(requests)
        self._on_notice = on_notice
        self._first: dict[str, int] | None = None

    def note(self, batch: int, written: Iterable[TableId], known: Iterable[str]) -> None:
        """Note what a batch has written, once all sinks have it.

        Args:
            batch: the batch's number.
            written: the tables of which it held rows.
            known: the names of the stream's tables; others were dropped.
        """
        first = {str(table): batch for table in written} | self._read()
        names = set(known)
        first = {name: number for name, number in first.items() if name in names}
        if first != self._read():
            value = {"v": _VERSION, "tables": dict(sorted(first.items()))}
            self._directory.write(_FILE, json.dumps(value))
            self._first = first

    def before(self, batch: int) -> list[str]:
        """The tables of which batches before `batch` have brought rows."""
        return sorted(name for name, first in self._read().items() if first < batch)

    def read_again(
        self, batch: int, target: str, tables: Iterable[TableId], why: str = "is new, or was dropped"
    ) -> bool:
        """Request that those of a target's tables be read again that earlier batches have written.

        Args:
            batch: the number of the batch for which the target lacks something.
            target: the target's name.
            tables: its tables.
            why: what is wrong with the target.

        Returns:
            Whether there is such a table.
        """
        first = self._read()
        gone = sorted(name for name in map(str, tables) if first.get(name, batch) < batch)
        for name in gone:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            self._requests.add([name], needed=True, id_=f"{batch:019d}-{digest}")
            self._on_notice(f"target `{target}` of table `{name}` {why}: the table is read again")
        return bool(gone)

    def _read(self) -> dict[str, int]:
        if self._first is None:
            text = self._directory.read(_FILE)
            self._first = {} if text is None else self._parsed(text)
        return self._first

    def _parsed(self, text: str) -> dict[str, int]:
        try:
            value = json.loads(text)
            if value["v"] != _VERSION:
                raise ValueError
            return {str(name): int(batch) for name, batch in value["tables"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StateError(
                f"`{self._path}/{_FILE}` cannot be read",
                f"found {text[:200]!a}",
                "remove the file: targets that were dropped before the next start are then not noticed",
                code="TR-6055",
            ) from None
