"""What a batch of cells holds, table by table: found by one small aggregate, before anything is unpacked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.model.table import TableId, TableSchema

SNAPSHOT, LOG = "snapshot", "log"


@dataclass(frozen=True)
class Part:
    """The snapshot or log cells of one table in one batch.

    Args:
        table: the table.
        kind: SNAPSHOT or LOG.
        changes: changes in them.
        cells: how many cells.
        shapes: the table's shapes in them, in log order.
    """

    table: TableId
    kind: str
    changes: int
    cells: int
    shapes: tuple[TableSchema, ...]

    def cells_of(self, frame: DataFrame) -> DataFrame:
        """This part's cells: one column `cell`."""
        return frame.where((f.col("table") == str(self.table)) & (f.col("kind") == self.kind)).select("cell")


def parts_of(frame: DataFrame) -> list[Part]:
    """The parts of a batch, sorted by table, snapshot after log."""
    found: dict[tuple[str, str], list[tuple[str, int, int, TableSchema]]] = {}
    # An IPC stream begins with four bytes 0xff, the schema message's length (little endian), the message.
    length = f.conv(f.concat(*(f.hex(f.substring("cell", byte, 1)) for byte in (8, 7, 6, 5))), 16, 10).cast(
        "int"
    )
    heads = frame.groupBy("table", "kind", "fingerprint").agg(
        f.sum("changes").alias("changes"),
        f.count("*").alias("cells"),
        f.min("min_seq").alias("seq"),
        # lengths and labels are no part of a fingerprint: the newest say what a target must hold
        f.max_by(f.col("cell").substr(f.lit(1), length + 8), "max_seq").alias("head"),
    )
    for row in heads.collect():
        shape = _shape(bytes(row["head"]))
        found.setdefault((row["table"], row["kind"]), []).append(
            (row["seq"], row["changes"], row["cells"], shape)
        )
    parts = []
    for (table, kind), shapes in sorted(found.items()):
        shapes.sort(key=lambda s: s[0])
        parts.append(
            Part(
                TableId.parse(table),
                kind,
                sum(s[1] for s in shapes),
                sum(s[2] for s in shapes),
                tuple(s[3] for s in shapes),
            )
        )
    return parts


class Expected:
    """What the next batch is expected to hold: the shapes that tables were last met with.

    A batch that holds anything else is found out after its cells have been read in vain. What is new seldom
    comes alone: so after one such batch nothing is expected until one has brought nothing new.
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str], TableSchema] = {}
        self._was_wrong = False

    def met(self, parts: Iterable[Part]) -> None:
        """A batch that is written held `parts`."""
        last = {(str(part.table), part.kind): part.shapes[-1] for part in parts}
        self._was_wrong = self._was_wrong and any(self._shapes.get(k) != shape for k, shape in last.items())
        self._shapes |= last

    def forget(self, tables: Iterable[TableId]) -> None:
        """These tables are gone."""
        gone = set(map(str, tables))
        self._shapes = {key: shape for key, shape in self._shapes.items() if key[0] not in gone}

    def was_wrong(self) -> None:
        """A batch held anything else."""
        self._was_wrong = True

    def shapes(self) -> Mapping[tuple[str, str], TableSchema]:
        """The shapes by table and kind of cell; empty where nothing is expected."""
        return {} if self._was_wrong else self._shapes


def _shape(head: bytes) -> TableSchema:
    schema = pa.ipc.read_schema(pa.py_buffer(head))
    return TableSchema.from_json(json.loads(schema.metadata[b"tailrace.table"]))
