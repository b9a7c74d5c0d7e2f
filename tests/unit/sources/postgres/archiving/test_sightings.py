"""Sightings: up to where a table is known to have been the same."""

from __future__ import annotations

import json
from io import BytesIO

import pytest

from tailrace.config.secret import Secret
from tailrace.errors import StateError
from tailrace.sources.archive.sealing import HEADER, SealedWriter
from tailrace.sources.postgres.archiving.sightings import Sighting, sightings
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.postgres.replication.timeline import History

HISTORY = History("7", ((1, 500),), 2, 1000)


def seen(identity, lsn, timeline="1@0/0"):
    state = TableState(identity, 16_400, ()) if identity else None
    return Sighting.of(state, PostgresPosition(lsn, "7", 0, timeline), 10 * lsn)


def test_sightings_of_one_identity_are_joined():
    joined = seen("a", 100).joined(seen("a", 400), HISTORY)
    assert joined == Sighting("a", 16_400, seen("a", 100).since, seen("a", 400).until, 4000)
    assert Sighting.from_json(json.loads(json.dumps(joined.to_json()))) == joined


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(seen("a", 100), seen("b", 400), id="another identity"),
        pytest.param(seen("a", 100), seen("", 400), id="gone"),
        pytest.param(seen("a", 600), seen("a", 900, "2@0/1F4"), id="behind where the log was left"),
    ],
)
def test_sightings_stay_apart_where_the_table_may_have_been_another(first, second):
    assert first.joined(second, HISTORY) is None


def write(archive, text):
    buffer = BytesIO()
    writer = SealedWriter(buffer, "sightings", archive.key)
    writer.write(HEADER, text.encode())
    writer.end()
    archive.store.write("sightings", buffer.getvalue())


def test_archive_without_sightings_or_with_those_of_a_newer_version_has_none(tmp_path):
    archive = WalArchive(str(tmp_path), Secret("11" * 32), create=True)
    assert sightings(archive) == {}
    write(archive, json.dumps({"v": 2, "tables": 7}))
    assert sightings(archive) == {}
    one = seen("a", 100)
    write(archive, json.dumps({"v": 1, "tables": {"public.t": [one.to_json()]}}))
    assert sightings(archive) == {"public.t": [one]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{}",
        '{"v": 1}',
        '{"v": 1, "tables": []}',
        '{"v": 1, "tables": {"t": 7}}',
        '{"v": 1, "tables": {"t": [{}]}}',
        json.dumps({"v": 1, "tables": {"t": [{**seen("a", 100).to_json(), "oid": "x"}]}}),
        json.dumps({"v": 1, "tables": {"t": [{**seen("a", 100).to_json(), "until": {"lsn": "x"}}]}}),
        json.dumps({"v": 1, "tables": {"t": [{**seen("a", 100).to_json(), "since": None}]}}),
    ],
)
def test_damaged_sightings_are_told(tmp_path, text):
    archive = WalArchive(str(tmp_path), None, create=True)
    write(archive, text)
    with pytest.raises(StateError) as damaged:
        sightings(archive)
    assert damaged.value.code == "TR-8204"
