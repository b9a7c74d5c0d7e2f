"""Tables as of a position, kept in an archive: what a table is restored from that is altered or gone now.

    bases/<n>              position, and for each table its number of rows and the digest of its file
    bases/<n>-<i>          the rows of one table, as cells (`model.cell`)

A base counts once its description is there. `<n>` is the time at which it was begun.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, BinaryIO

import pyarrow as pa

from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sources.archive.archive import LogArchive, now_us
from tailrace.sources.archive.sealing import EVENTS, HEADER, SealedReader, SealedWriter, damaged
from tailrace.sources.archive.writing import Hashing

_NAME = re.compile(r"[0-9]{17}")
_FILE = re.compile(r"([0-9]{17})(-[0-9]{6})?(\.new)?")
_MOST_DESCRIPTION = 64 << 20
#: No such frame is larger.
_MOST_CELL = 1 << 30
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True)
class BaseTable:
    """A table of a base.

    Args:
        schema: its columns and key.
        rows: how many it has.
        digest: SHA-256 of its file.
    """

    schema: TableSchema
    rows: int
    digest: str


@dataclass(frozen=True)
class Base:
    """Tables as of one position.

    Args:
        number: its name in the archive.
        position: the position, as JSON.
        tables: the tables.
        state: what the source keeps with them, as JSON.
    """

    number: int
    position: Mapping[str, Any]
    tables: tuple[BaseTable, ...]
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its file in the archive."""
        return f"bases/{self.number:017d}"

    def table(self, name: str) -> BaseTable | None:
        """The table of that name."""
        return next((table for table in self.tables if str(table.schema.id) == name), None)


def write_base(
    archive: LogArchive[Any],
    position: Mapping[str, Any],
    tables: Iterable[tuple[TableSchema, Iterable[ChangeBatch]]],
    state: Mapping[str, Any] | None = None,
) -> Base:
    """Write the rows of tables as of a position."""
    number = now_us()
    written = []
    for at, (schema, batches) in enumerate(tables):
        name = f"bases/{number:017d}-{at:06d}"
        with archive.store.writing(name) as file:
            hashed, rows = Hashing(file), 0
            writer = SealedWriter(hashed, name, archive.key)
            for batch in batches:
                writer.write(EVENTS, encode_cell(batch).to_pybytes())
                rows += len(batch)
            writer.end()
        written.append(BaseTable(schema, rows, hashed.digest.hexdigest()))
    name, kept = f"bases/{number:017d}", dict(state or {})
    value = {
        "position": dict(position),
        "tables": [{"schema": t.schema.to_json(), "rows": t.rows, "digest": t.digest} for t in written],
        "state": kept,
    }
    buffer = BytesIO()
    writer = SealedWriter(buffer, name, archive.key)
    writer.write(HEADER, json.dumps(value).encode())
    writer.end()
    archive.store.write(name, buffer.getvalue())
    return Base(number, position, tuple(written), kept)


def bases(archive: LogArchive[Any]) -> list[Base]:
    """The bases of an archive, oldest first.

    Raises:
        StateError: one is damaged.
    """
    found = []
    for name in archive.store.names("bases"):
        data = archive.store.read(f"bases/{name}", _MOST_DESCRIPTION) if _NAME.fullmatch(name) else None
        if data is not None:
            found.append(_base(archive, name, data))
    return found


def _base(archive: LogArchive[Any], name: str, data: bytes) -> Base:
    where = f"bases/{name}"
    frames = list(SealedReader(BytesIO(data), where, archive.key).frames(_MOST_DESCRIPTION))
    try:
        (frame,) = frames
        value = json.loads(frame.data or b"")
        tables = tuple(
            BaseTable(TableSchema.from_json(t["schema"]), int(t["rows"]), str(t["digest"]))
            for t in value["tables"]
        )
        # bases of earlier versions have no state
        return Base(int(name), dict(value["position"]), tables, dict(value.get("state", {})))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged(where, "it does not describe a base") from None


def base_rows(archive: LogArchive[Any], base: Base, table: BaseTable) -> Iterator[pa.StructArray]:
    """The rows of a table of a base, of type `table.schema.arrow`.

    Raises:
        StateError: its file is damaged or missing.
    """
    name = f"bases/{base.number:017d}-{base.tables.index(table):06d}"
    with _verified(archive, name, table.digest) as file:
        for frame in SealedReader(file, name, archive.key).frames(_MOST_CELL):
            try:
                batch = decode_cell(frame.data or b"")
                rows = batch.image("after")
                rows.validate(full=True)
            except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, StopIteration):
                raise damaged(name, "it does not hold rows") from None
            if rows.type != table.schema.arrow:
                raise damaged(name, "its rows are of another table")
            yield rows


@contextmanager
def _verified(archive: LogArchive[Any], name: str, digest: str) -> Iterator[BinaryIO]:
    try:
        with archive.store.reading(name) as file:
            found = hashlib.sha256()
            while part := file.read(_HASHED_BYTES):
                found.update(part)
            if found.hexdigest() != digest:
                raise damaged(name, "its digest is not the one in the description")
            file.seek(0)
            yield file
    except FileNotFoundError:
        raise damaged(name, "it is missing") from None


def remove_bases(archive: LogArchive[Any], numbers: set[int]) -> None:
    """Remove bases: first what describes them."""
    names = archive.store.names("bases")
    found = [name for name in names if (match := _FILE.fullmatch(name)) and int(match[1]) in numbers]
    for name in sorted(found, key=lambda name: ("-" in name, name)):
        archive.store.remove(f"bases/{name}")
