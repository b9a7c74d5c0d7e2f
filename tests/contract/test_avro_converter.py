"""Avro messages against another implementation of the converter, given the JSON messages of the same batch.

Connect's own JSON converter reads our JSON messages with schemas, Apicurio's Avro converter (2.6.13, which
began as a copy of Confluent's, whose jars are not on Maven Central) writes what it read: schema and bytes
must be ours.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.avro import AvroEncoding
from tailrace.java import java
from tailrace.model.source_type import Declaration, SourceType
from tailrace.spark.jars import cached_jars
from tests.unit.formats.changes import batch, change
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

_PROGRAM = Path(__file__).parents[1] / "support" / "java" / "AvroConverter.java"
_VERSION = "2.6.13.Final"


def convert(lines):
    package = f"io.apicurio:apicurio-registry-utils-converter:{_VERSION}"
    path = cached_jars(f"apicurio-converter-{_VERSION}", [package], pinned=False)
    # one program of one file: Java compiles and runs it
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, path)), str(_PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def without_docs(schema):
    """Confluent's converter of today writes a field's doc only where it is a parameter."""
    if isinstance(schema, dict):
        field = "name" in schema and "fields" not in schema
        return {k: without_docs(v) for k, v in schema.items() if not (k == "doc" and field)}
    return [without_docs(s) for s in schema] if isinstance(schema, list) else schema


def with_declarations(table):
    """The table with declared types and comments of its columns."""
    columns = (
        replace(c, declared=Declaration(c.name, SourceType("T", 5, 2), f'of "{c.name}"'))
        for c in table.columns
    )
    return replace(table, columns=tuple(columns))


@pytest.mark.parametrize("table", [TYPES_TABLE, with_declarations(TYPES_TABLE)], ids=["plain", "declared"])
def test_schemas_and_bytes_are_those_of_the_other_converter(table):
    first, second, third = TYPES_ROWS
    rows = [change("r", None, first), change("u", first, second), change("d", third)]
    changes = batch(table, rows)
    lines, ours = [], []
    for modes in (Modes(), Modes(decimal="string", bigint_unsigned="precise", binary="hex")):
        form = DebeziumFormat(Envelopes(Topics("app"), version="1", modes=modes), schemas=True)
        of = AvroEncoding(Envelopes(Topics("app"), version="1", modes=modes))
        schemas = of.key_schema(table), of.value_schema(table)
        ids = {s.reference: 1 for s in schemas}
        lines += [t.decode() for t in form.keys(changes).to_pylist() + form.values(changes, 5).to_pylist()]
        ours += [(schemas[0].text, m) for m in of.keys(changes, ids).to_pylist()]
        ours += [(schemas[1].text, m) for m in of.values(changes, 5, ids).to_pylist()]
    for (schema, data), (text, message) in zip(convert(lines), ours, strict=True):
        assert without_docs(json.loads(schema)) == json.loads(text)
        assert message[5:].hex() == data
