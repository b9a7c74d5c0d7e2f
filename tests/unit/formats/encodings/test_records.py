"""The record kernel stays inside its memory, as the one of documents does."""

from __future__ import annotations

import sys

import pytest

from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.encodings import records
from tailrace.model.change import ChangeBatch
from tests.unit.formats.changes import batch, change
from tests.unit.formats.encodings.test_json_documents import CHANGES, TABLE, Guarded, SmallOutput
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

ENCODINGS = [("avro", "avro"), ("protobuf", "protobuf"), ("json", "canal-json")]


def made(encodings, changes):
    form = key_value_format(Envelopes(Topics("app")), *encodings)
    ids = {schema.reference: 70_000 for schema in form.schemas(changes.table)}
    return form.messages(changes, 0, ids)


@pytest.mark.parametrize("encodings", ENCODINGS, ids=lambda e: e[1])
def test_output_is_never_written_beyond_its_room(monkeypatch, encodings):
    first, second, third = TYPES_ROWS
    of_types = [change("c", None, first), change("u", first, second), change("d", third)]
    for table, rows in ((TABLE, CHANGES), (TYPES_TABLE, of_types)):
        changes = batch(table, rows)
        expected = made(encodings, changes)
        monkeypatch.setattr(SmallOutput, "made", [])
        with monkeypatch.context() as patched:
            patched.setattr(records, "Output", SmallOutput)
            assert made(encodings, changes).equals(expected)
        assert SmallOutput.made
        for output in SmallOutput.made:
            output.check()


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages by mprotect")
@pytest.mark.parametrize("encodings", ENCODINGS[:2], ids=lambda e: e[1])
@pytest.mark.parametrize("rows", range(1, len(CHANGES) + 1, 2))
def test_input_is_never_read_beyond_its_end(rows, encodings):
    changes = batch(TABLE, CHANGES[-rows:])
    guarded = Guarded()
    try:
        before, after = (None if a is None else guarded.array(a) for a in (changes.before, changes.after))
        copy = ChangeBatch(TABLE, guarded.array(changes.op), before, after, changes.origin)
        assert made(encodings, copy).equals(made(encodings, changes))
        del copy, before, after
    finally:
        guarded.release()
