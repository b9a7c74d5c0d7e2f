"""How far a comparison has come, kept beside the checkpoint, so that one that was interrupted goes on.

    <checkpoint>/_tailrace/verification/batch.json    the batch that is compared, with its end
                                        <hash>.json   a table: its key ranges, how far each is read, checksums

It goes on *as of the same batch*: rows as of its position can be read later too, while the server's log
reaches back to it, and tables have the version that it left until their files are removed. So the result is
that of one position, just as without the interruption.

Targets that cannot show an earlier state (replicas, OpenSearch, ClickHouse, DuckDB) are compared in parts,
each at a position of its own (`in_parts`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.enumerator.snapshot import KeyRange
from tailrace.errors import StateError
from tailrace.model.split import Key
from tailrace.spark.checkpoint import Directory, PlannedBatch, absolute
from tailrace.verify.checksum import Checksums

_VERSION = 1
_NAME, _BATCH = "verification", "batch.json"
#: A table is noted at most as often, seconds.
_EVERY_S = 5.0


@dataclass
class RangeRead:
    """A key range, and what is read of it.

    Args:
        whole: the range.
        upto: the key up to which it was read; None: nothing was, or all.
        done: whether all was read.
        sums: the checksums of the rows that were read.
        kept: what `sums` was when the range was read up to `upto`.
    """

    whole: KeyRange
    upto: Key | None = None
    done: bool = False
    sums: Checksums = field(default_factory=Checksums.empty)
    kept: bytes = field(default_factory=Checksums.empty().to_bytes)

    @property
    def rest(self) -> KeyRange:
        """What is not read yet."""
        return self.whole if self.upto is None else KeyRange(self.upto, self.whole.upto)

    def to_json(self) -> dict[str, Any]:
        """What is kept, as JSON values."""
        sums = base64.b64encode(zlib.compress(self.kept, 1)).decode()
        keys = [None if key is None else list(key) for key in (self.whole.after, self.whole.upto, self.upto)]
        return {"keys": keys, "done": self.done, "sums": sums}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RangeRead:
        """Read what `to_json` wrote."""
        after, end, upto = (None if key is None else tuple(key) for key in value["keys"])
        kept = zlib.decompress(base64.b64decode(value["sums"]))
        return cls(KeyRange(after, end), upto, value["done"], Checksums.from_bytes(kept), kept)


class KeptComparison:
    """What is kept of a comparison.

    Args:
        checkpoint: the pipeline's.
        batch: the batch that is compared.
        is_new: whether nothing that an earlier comparison kept is used.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        checkpoint: str,
        batch: PlannedBatch,
        *,
        is_new: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoint = checkpoint
        self._directory = kept_directory(checkpoint)
        self._clock = clock
        self._lock = threading.Lock()
        self._noted_s: dict[str, float] = {}
        self._tables: dict[str, tuple[str, list[RangeRead]]] = {}
        if is_new:
            self.forget()
            self._directory.write(_BATCH, json.dumps({"v": _VERSION, "id": batch.id, "end": batch.end}))

    @staticmethod
    def batch(checkpoint: str) -> PlannedBatch:
        """The batch of the comparison that was interrupted.

        Raises:
            StateError: none was.
        """
        value = json.loads(kept_directory(checkpoint).read(_BATCH) or "null")
        if value is None or value["v"] != _VERSION:
            raise no_comparison(checkpoint)
        return PlannedBatch(value["id"], value["end"], committed=True)

    def ranges(
        self, table: str, columns: pa.Schema, key: Sequence[str], plan: Callable[[], Sequence[KeyRange]]
    ) -> list[RangeRead]:
        """The key ranges of a table: those that are kept, if they are of the same columns, else new ones.

        Args:
            table: its name.
            columns: the columns that are compared.
            key: names of the key's.
            plan: divides the table.
        """
        form = json.dumps([columns.to_string(show_field_metadata=False), list(key)])
        text = self._directory.read(_file(table))
        value = json.loads(text or "null")
        if value is not None and value["form"] == form:
            found = [RangeRead.from_json(one) for one in value["ranges"]]
        else:
            found = [RangeRead(part) for part in plan()]
        self._tables[table] = form, found
        return found

    def read(self, table: str, part: RangeRead, upto: Key | None) -> None:
        """A range is read up to a key, None: to its end, and its checksums are those of the rows."""
        with self._lock:
            part.upto, part.done, part.kept = upto, upto is None, part.sums.to_bytes()
            form, ranges = self._tables[table]
            now_s = self._clock()
            if all(one.done for one in ranges) or now_s - self._noted_s.get(table, 0.0) >= _EVERY_S:
                self._noted_s[table] = now_s
                value = {"form": form, "ranges": [one.to_json() for one in ranges]}
                self._directory.write(_file(table), json.dumps(value))

    def forget(self) -> None:
        """The comparison has come to its end."""
        forget(self._checkpoint)


def forget(checkpoint: str) -> None:
    """Keep nothing of any comparison."""
    Directory(_place(checkpoint)).remove_directory(_NAME)


def no_comparison(checkpoint: str) -> StateError:
    """The error where there is none to go on with."""
    return StateError(
        "there is no comparison to go on with",
        f"found none beside the checkpoint {checkpoint} that was interrupted",
        "compare anew: tailrace verify PIPELINE.YAML",
        code="TR-8111",
    )


def kept_directory(checkpoint: str) -> Directory:
    """Where what is kept lies."""
    return Directory(f"{_place(checkpoint)}/{_NAME}", private=True)


def _place(checkpoint: str) -> str:
    return f"{absolute(checkpoint).rstrip('/')}/_tailrace"


def _file(table: str) -> str:
    return f"{hashlib.sha256(table.encode()).hexdigest()[:24]}.json"
