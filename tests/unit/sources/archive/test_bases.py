"""Bases: tables as of a position, kept in an archive."""

from __future__ import annotations

import json
from io import BytesIO

import pyarrow as pa

from tailrace.config.secret import Secret
from tailrace.model.change import OP_READ
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.bases import base_rows, bases, write_base
from tailrace.sources.archive.sealing import HEADER, SealedReader, SealedWriter
from tests.support.changes import INT, changes, table

TABLE = table(("id", INT), ("v", INT), key=("id",))
ROWS = [{"id": 1, "v": 2}, {"id": 2, "v": None}]


def _written(archive, **given):
    batch = changes(TABLE, [("r", None, row) for row in ROWS])
    assert set(batch.op.to_pylist()) == {OP_READ}
    return write_base(archive, {"file": "log.000001", "pos": 4}, [(TABLE, [batch])], **given)


def test_base_comes_back_with_its_rows_and_what_the_source_keeps_with_it(tmp_path):
    archive = Archive(str(tmp_path), Secret("11" * 32), create=True)
    written = _written(archive, state={"tables": {"shop.t": 7}})
    (found,) = bases(archive)
    assert found == written
    assert found.state == {"tables": {"shop.t": 7}}
    rows = pa.concat_arrays(list(base_rows(archive, found, found.tables[0])))
    assert rows.to_pylist() == ROWS


def test_base_of_an_earlier_version_has_no_state(tmp_path):
    archive = Archive(str(tmp_path), None, create=True)
    name = _written(archive).name
    (frame,) = SealedReader(BytesIO(archive.store.read(name, 1 << 20)), name, archive.key).frames(1 << 20)
    value = json.loads(frame.data)
    del value["state"]
    buffer = BytesIO()
    writer = SealedWriter(buffer, name, archive.key)
    writer.write(HEADER, json.dumps(value).encode())
    writer.end()
    archive.store.write(name, buffer.getvalue())
    (found,) = bases(archive)
    assert found.state == {}
    assert [str(its.schema.id) for its in found.tables] == ["shop.t"]
