"""A session from an archive has each description where the server would send it."""

from __future__ import annotations

import struct

import pytest

from tailrace.errors import DecodeError
from tailrace.sources.postgres.replication.archive.segment import WalSegment
from tailrace.sources.postgres.replication.archive.session import Descriptions


def message(letter: bytes, body: bytes) -> bytes:
    payload = b"w" + struct.pack(">QQQ", 1, 2, 3) + letter + body
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


def relation(oid: int, column: str = "id") -> bytes:
    columns = b"\1" + column.encode() + b"\0" + struct.pack(">Ii", 23, -1)
    return message(b"R", struct.pack(">I", oid) + b"public\0t%d\0d" % oid + struct.pack(">H", 1) + columns)


def insert(oid: int) -> bytes:
    return message(b"I", struct.pack(">I", oid) + b"N" + struct.pack(">H", 0))


def truncate(*oids: int) -> bytes:
    return message(b"T", struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids))


BEGIN, COMMIT = message(b"B", bytes(20)), message(b"C", bytes(25))
KEEPALIVE = b"d" + struct.pack(">I", 22) + b"k" + bytes(17)


def sent(described: Descriptions, *pieces: bytes) -> bytes:
    return b"".join(part for piece in pieces for part in described.sent(piece))


def test_description_comes_before_the_first_change_of_its_relation_and_once():
    described = Descriptions()
    described.learn(BEGIN + relation(1) + insert(1) + relation(2) + COMMIT)
    before = BEGIN + KEEPALIVE
    rest = insert(1) + COMMIT
    assert sent(described, before + insert(2), insert(2) + rest, rest) == (
        before + relation(2) + insert(2) + insert(2) + relation(1) + rest + rest
    )


def test_description_that_the_archive_has_anew_replaces_the_one_before():
    described = Descriptions()
    described.learn(relation(1) + relation(1, "other"))
    log = BEGIN + relation(1, "newest") + insert(1) + COMMIT
    assert sent(described, log) == log
    described.learn(relation(1))  # of a later segment: it is in force already
    assert sent(described, log) == log


def test_truncated_relations_are_described_first():
    described = Descriptions()
    described.learn(relation(1) + relation(2) + relation(3))
    log = BEGIN + truncate(2, 1) + COMMIT
    assert sent(described, log) == BEGIN + relation(2) + relation(1) + truncate(2, 1) + COMMIT


def test_many_relations_and_unknown_ones():
    described = Descriptions()
    described.learn(b"".join(relation(oid) for oid in range(1000)))
    log = BEGIN + insert(5000) + insert(999) + COMMIT
    assert sent(described, log) == BEGIN + insert(5000) + relation(999) + insert(999) + COMMIT


@pytest.mark.parametrize("cut", [3, 20, 35])
def test_broken_messages_are_errors(cut):
    described = Descriptions()
    described.learn(relation(1))
    with pytest.raises(DecodeError):
        sent(described, BEGIN + insert(1)[:cut])
    with pytest.raises(DecodeError):
        Descriptions().learn(relation(1)[:cut])


def segment(**given):
    values = {
        "number": 0,
        "token": "0" * 16,
        "begins": True,
        "server": "s",
        "transactions": 0,
        "first_us": 0,
        "last_us": 0,
        "written_us": 0,
        "size": 1,
        "digest": "0" * 64,
        "previous": "",
        "database": "d",
        "publication": "p",
        "timelines": "1:0/10 2",
        "start": 1,
        "end": 32,
        "since_us": 0,
        "preamble": 0,
        "content": 0,
    }
    return {**values, **given}


def test_segment_names_its_log():
    found = WalSegment.from_json(segment())
    assert found.to_json() == segment()
    assert found.history.position(8).timeline == "1@0/0"
    assert found.history.position(found.end).timeline == "2@0/10"


@pytest.mark.parametrize(
    "given",
    [
        {"timelines": ""},
        {"timelines": "x"},
        {"timelines": "1:y 2"},
        {"start": 32},
        {"preamble": 1},
        {"content": "0"},
        {"publication": None},
        {"digest": "0"},
        {"end": 1 << 62},
    ],
)
def test_hostile_segment_is_refused(given):
    with pytest.raises(ValueError, match=r"\S"):
        WalSegment.from_json(segment(**given))
