"""What was recorded, decoded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.postgres.wire.pgoutput import LogDecoder
from tailrace.sources.postgres.wire.types import PostgresType, PostgresTypes
from tests.support.plain import plain

HERE = Path(__file__).parent
_CATALOG = json.loads((HERE / "catalog.json").read_text())
TYPES = PostgresTypes(PostgresType(*t[:7], tuple(t[7])) for t in _CATALOG["types"])
SCHEMAS = {schema["id"][1]: TableSchema.from_json(schema) for schema in _CATALOG["shapes"]}
#: Longest text that is kept whole in what is expected.
_LONG = 60


def captures(table: TableId) -> bool:
    return table.table != "other"


def stream(name: str) -> bytes:
    """A recorded stream's messages."""
    return (HERE / f"{name}.stream").read_bytes()


def decoder(**options: Any) -> LogDecoder:
    """A decoder of recorded streams."""
    return LogDecoder(**{"captures": captures, "types": TYPES, **options})


def changes(batches: Iterable[ChangeBatch]) -> list[dict[str, Any]]:
    """Every change with all that is known of it, as JSON values, in the order of `seq`."""
    out = []
    for batch in batches:
        assert batch.to_record_batch().to_struct_array().validate(full=True) is None
        origin = plain(batch.origin.to_struct_array())
        images = zip(plain(batch.image("before")), plain(batch.image("after")), strict=True)
        for op, (before, after), where in zip(batch.op.to_pylist(), images, origin, strict=True):
            absent = [batch.absent_before if before else (), batch.absent_after if after else ()]
            out.append(
                {
                    "table": batch.table.id.table,
                    "op": OP_LETTERS[op],
                    "before": _known(before, absent[0]),
                    "after": _known(after, absent[1]),
                    "absent": [sorted(names) for names in absent],
                    "key": list(batch.table.key),
                    "origin": where,
                }
            )
    return sorted(out, key=lambda change: str(change["origin"]["seq"]))


def _known(row: dict[str, Any] | None, absent: tuple[str, ...]) -> dict[str, Any] | None:
    if row is None:
        return None
    assert all(row[name] is None for name in absent)
    return {name: _short(value) for name, value in row.items() if name not in absent}


def _short(value: Any) -> Any:
    long = isinstance(value, str) and len(value) > _LONG
    return f"{value[0]} x {len(value)}" if long and set(value) == {value[0]} else value


def main() -> None:
    """Write what is expected of the streams, to be looked at before it is committed."""
    found = changes(decoder().feed(stream("binary")))
    lines = ",\n".join(json.dumps(change, ensure_ascii=False) for change in found)
    (HERE / "changes.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
