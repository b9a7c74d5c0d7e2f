"""Logical messages of PostgreSQL: in their place among the changes, once each, as Debezium writes them."""

from __future__ import annotations

import json
import time

import pytest

from tailrace.errors import ConfigError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.messages import MESSAGES
from tests.support.engine import Engine, multiset
from tests.support.postgres import options_for

EMIT = "SELECT pg_logical_emit_message({}, '{}', '{}')"


@pytest.fixture
def options(postgres, postgres_database):
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=postgres_database)
    given = {"shape": "debezium", "message.prefix.include.list": "app\\..*"}
    return options_for(postgres, postgres_database, "public.t", **given)


def _read(engine, rows):
    """Offsets and log of the batches that come until so many changes have come."""
    found, end = [], time.monotonic() + 60
    while sum(len(b) for _, log in found for b in log) < rows or engine.offset.tables:
        assert time.monotonic() < end, found
        offsets = engine.next()
        if offsets is not None:
            found.append((offsets, engine.read(*offsets)[1]))
    return found


def test_messages_come_once_in_their_place_and_again_in_a_batch_that_is_repeated(
    postgres, postgres_database, options
):
    with Engine(options) as engine:
        engine.read(*engine.next())
        postgres.execute(EMIT.format("false", "app.x", "before"), database=postgres_database)
        postgres.execute(
            "BEGIN",
            "INSERT INTO t VALUES (1)",
            EMIT.format("true", "app.x", "within"),
            EMIT.format("true", "other", "not wanted"),
            "INSERT INTO t VALUES (2)",
            "COMMIT",
            "BEGIN",
            EMIT.format("true", "app.y", "rolled back"),
            EMIT.format("false", "app.y", "stays"),
            "ROLLBACK",
            EMIT.format("true", "app.x", "alone"),
            database=postgres_database,
        )
        found = _read(engine, 6)
        rows = sorted(
            (seq, tuple(image.values())[1:])
            for _, log in found
            for b in log
            for seq, image in zip(
                b.origin.column("seq").to_pylist(), b.image("after").to_pylist(), strict=True
            )
        )
        assert [row for _, row in rows] == [
            (False, "app.x", b"before"),
            (),
            (True, "app.x", b"within"),
            (),
            (False, "app.y", b"stays"),
            (True, "app.x", b"alone"),
        ]
        assert len({seq for seq, _ in rows}) == len(rows)
    with Engine(options) as again:  # another process: the bytes are not held by this one
        for (start, stop), log in found:
            assert multiset(again.read(start, stop)[1]) == multiset(log)


def test_messages_are_written_as_debezium_writes_them(postgres, postgres_database, options):
    with Engine(options) as engine:
        engine.read(*engine.next())
        postgres.execute(EMIT.format("true", "app.x", "é"), database=postgres_database)
        found = _read(engine, 1)
    (batch,) = (b for _, log in found for b in log if b.table == MESSAGES)
    form = DebeziumFormat(Envelopes(Topics("shop"), "postgresql", database=postgres_database))
    (message,) = form.to_messages(batch, 1234).to_pylist()
    assert message["topic"] == "shop.message"
    assert json.loads(message["key"]) == {"prefix": "app.x"}
    value = json.loads(message["value"])
    assert (value["op"], value["ts_ms"], value["message"]) == (
        "m",
        1234,
        {"prefix": "app.x", "content": "w6k="},
    )
    source = value["source"]
    assert (source["db"], source["schema"], source["table"]) == (postgres_database, "", "")
    assert source["txId"] > 0
    assert source["ts_ms"] > 1_700_000_000_000
    with_schema = DebeziumFormat(form.envelopes, schemas=True).to_messages(batch, 1234).to_pylist()[0]
    for text, payload in ((with_schema["key"], message["key"]), (with_schema["value"], message["value"])):
        made = json.loads(text)
        assert made["payload"] == json.loads(payload)
        assert [f["field"] for f in made["schema"]["fields"]] == list(made["payload"])


def test_messages_are_refused_where_they_have_no_form(postgres, postgres_database):
    with pytest.raises(ConfigError, match="has no effect on shape `row`"):
        options_for(postgres, postgres_database, "public.t", **{"message.prefix.include.list": "a"})
    both = {"message.prefix.include.list": "a", "message.prefix.exclude.list": "b", "shape": "debezium"}
    with pytest.raises(ConfigError, match="exclude each other"):
        options_for(postgres, postgres_database, "public.t", **both)
