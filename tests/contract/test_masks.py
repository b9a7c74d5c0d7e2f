"""Masks of columns against Debezium's own classes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.model.column_mask import column_mask
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.masks import Masks
from tests.support.changes import changes, table
from tests.support.plugins import debezium_jars, run_java

pytestmark = pytest.mark.slow

_TEXTS = [
    "",
    "a",
    "plain text",
    "größe \u2028",
    "nul \0 inside",
    "wide \U0001f600\U0001f600 end",
    "x" * 70_000,
]
_HASHES = ["MD5", "SHA-1", "SHA-224", "SHA-256", "SHA-384", "SHA-512", "SHA-512/256", "SHA3-256"]


def test_values_are_those_of_debezium():
    cases = [(f"column.truncate.to.{n}.chars", "truncate", str(n), -1) for n in (0, 1, 5, 8, 100_000)]
    cases += [(f"column.mask.with.{n}.chars", "stars", str(n), 10) for n in (0, 3)]
    for version in ("V1", "V2"):
        cases += [
            (f"column.mask.hash.{'v2.' if version == 'V2' else ''}{name}", version, name, length)
            for name in _HASHES
            for length in (-1, 20)
        ]
    lines, ours = [], []
    for option, kind, argument, length in cases:
        type_ = ColumnType(Kind.STRING, "varchar", length=length if length > 0 else None)
        schema = table(("id", ColumnType(Kind.INTEGER, "int", bits=32)), ("c", type_), key=("id",))
        masks = Masks([column_mask(option, [".*[.]c"])], b"pepper")
        rows = [("c", None, {"id": n, "c": text}) for n, text in enumerate(_TEXTS)]
        after = masks.batch(changes(schema, rows)).after
        assert isinstance(after, pa.StructArray)
        ours += [text.encode() for text in after.field(1).to_pylist()]
        lines += [f"{kind}\t{argument}\t{length}\t{text.encode().hex()}" for text in _TEXTS]
    made = run_java("Masks.java", debezium_jars(), text="\n".join(lines)).splitlines()
    theirs = [bytes.fromhex(line) for line in made]
    # Java writes the half of a character that it cuts as `?`
    assert ours == [
        text.removesuffix(b"?") if line.startswith("truncate") and text.endswith(b"?") else text
        for line, text in zip(lines, theirs, strict=True)
    ]
