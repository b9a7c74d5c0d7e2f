"""What the Kafka sink's tasks make of cells, without a broker."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.kernels.murmur import partitions_of
from tailrace.model.change import ORIGIN, ChangeBatch
from tests.support.changes import INT, TEXT, changes, table

pytest.importorskip("confluent_kafka")

import confluent_kafka

from tailrace.sinks.kafka import librdkafka
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.formats import message_format
from tailrace.sinks.kafka.librdkafka import KafkaError, MessageColumns, Producer, kernel, library_path
from tailrace.sinks.kafka.markers import Marker, Record, _parsed
from tailrace.sinks.kafka.messages import change_of, sizes
from tailrace.sinks.kafka.shares import Share
from tailrace.sinks.kafka.transactions import WriterTransaction
from tailrace.sinks.messages.reports import failed_report, reported_error, stopped_report, written_report
from tailrace.sinks.messages.shares import cut, owned_by

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
SETTINGS = KafkaSettings("nowhere:1", "p")
ENVELOPES = Envelopes(Topics("p"))


def share(**given: Any) -> Share:
    return replace(
        Share(
            client=Client("nowhere:1", {}),
            format=message_format(SETTINGS, ENVELOPES),
            ids={},
            topics={"shop.t": Topic("p.shop.t", 3, 1000)},
            writers=3,
            undivided=frozenset(),
            now_ms=0,
            tombstones=True,
            quarantine=None,
            most_quarantined=1,
            quarantined={},
            name=None,
            marker=Marker("s", 0, 3),
            marker_topic="m",
            marker_end=0,
            tokens={},
        ),
        **given,
    )


def key_update(old: int, new: int, first: int) -> ChangeBatch:
    """A delete and a create that are the halves of one update."""
    batch = changes(SCHEMA, [("d", row(old), None), ("c", None, row(new))], first=first)
    seq = f"{2 * first:032x}"
    halves = pa.array([seq, seq[:-1] + format(int(seq[-1], 16) + 1, "x")])
    return replace(batch, origin=batch.origin.set_column(0, "seq", halves))


def row(i: int) -> dict[str, Any]:
    return {"id": i, "name": f"n{i}"}


# murmur2 of these texts as Kafka's own tests have it (UtilsTest): 32-bit hashes, signed
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 100])
def test_partition_of_a_key_is_that_of_kafkas_java_producer(partitions: int) -> None:
    found = partitions_of(pa.array([*VECTORS, None]), partitions)
    assert found.tolist() == [(h & 0x7FFFFFFF) % partitions for h in VECTORS.values()] + [0]
    assert (partitions_of(pa.array([b"x", *VECTORS]).slice(1), partitions) == found[:-1]).all()


def test_changes_of_a_key_stay_with_one_writer_in_their_order() -> None:
    rows = [("u", row(i % 10), {"id": i % 10, "name": str(i)}) for i in range(200)]
    pieces = dict(cut(share(), changes(SCHEMA, rows)))
    assert sorted(pieces) == [0, 1, 2]
    owners: dict[int, int] = {}
    for writer, piece in pieces.items():
        seqs = piece.origin.column("seq").to_pylist()
        assert seqs == sorted(seqs)
        for image in piece.image("after").to_pylist():
            assert owners.setdefault(image["id"], writer) == writer
    assert sum(map(len, pieces.values())) == 200


def test_halves_of_a_key_update_reach_their_writers_and_keep_their_headers() -> None:
    made = share()
    for first, (old, new) in enumerate([(1, 2), (2, 9), (3, 4), (5, 11)]):
        whole = key_update(old, new, first)
        written = []
        for writer, piece in cut(made, whole):
            messages = made.format.messages(piece, 0, {})
            owned = owned_by(made, writer, piece)
            assert owned is not None
            own = owned[change_of(piece, messages.num_rows)]
            written += messages.filter(pa.array(own)).to_pylist()
        expected = made.format.messages(whole, 0, {}).to_pylist()
        assert sorted(map(repr, written)) == sorted(map(repr, expected))


def test_table_with_two_forms_of_its_key_is_notcut() -> None:
    batch = changes(SCHEMA, [("c", None, row(i)) for i in range(50)])
    pieces = list(cut(share(undivided=frozenset({"shop.t"})), batch))
    assert [len(piece) for _, piece in pieces] == [50]


def test_table_without_a_key_is_notcut() -> None:
    batch = changes(table(("id", INT), ("name", TEXT), key=()), [("c", None, row(i)) for i in range(50)])
    assert [len(piece) for _, piece in cut(share(), batch)] == [50]


def test_size_of_a_message_counts_its_headers() -> None:
    plain = share().format.messages(changes(SCHEMA, [("c", None, row(1))]), 0, {})
    pair = share().format.messages(key_update(1, 2, 0), 0, {})
    assert sizes(plain)[0] == 128 + sum(len(plain.column(c)[0].as_py()) for c in ("key", "value"))
    header = len("__debezium.newkey") + len(b'{"id":2}') + 10
    assert sizes(pair)[1] == 128 + len(b'{"id":1}') + header


def test_message_that_its_topic_does_not_take_is_refused_with_its_place_in_the_log() -> None:
    made = share(topics={"shop.t": Topic("p.shop.t", 3, 300)})
    batch = changes(SCHEMA, [("c", None, row(1))], first=7)
    transaction = WriterTransaction(made, 0, None, done=False)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match=r"larger than topic `p\.shop\.t` takes") as error:
        transaction.write(batch)
    assert "binlog.000001:700" in str(error.value)


def test_marker_is_read_as_it_was_written() -> None:
    for marker, stored in (
        (Marker("stream", 7, 3), b'{"v":1,"stream":"stream","batch":7,"writers":3}'),
        (Marker("stream", 7, 3, "ab"), b'{"v":2,"stream":"stream","batch":7,"writers":3,"division":"ab"}'),
    ):
        assert Record("2", marker).pair() == (b"2", stored)
        assert _parsed("t", stored) == marker


@pytest.mark.parametrize("kind", [SinkError, TransientSinkError])
def test_failure_is_reported_with_its_kind_and_texts(kind: type[SinkError]) -> None:
    (report,) = failed_report(kind("message", "detail", "hint", code="TR-7407")).to_pylist()
    error = reported_error(report)
    assert type(error) is kind
    assert (error.args, error.code) == (("message", "detail", "hint"), "TR-7407")


def test_report_of_a_written_share_counts_its_changes() -> None:
    (report,) = written_report(2, "token", {"a.b": 1}, {("a.b", "log"): 3}).to_pylist()
    assert reported_error(report) is None
    assert (report["writer"], report["token"], report["refused"]) == (2, "token", [("a.b", 1)])
    assert report["changes"] == [{"table": "a.b", "kind": "log", "changes": 3}]
    (stopped,) = stopped_report(2).to_pylist()
    assert reported_error(stopped) is None
    assert stopped["changes"] is None


def test_settings_of_the_sink_itself_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match="transactional"):
        Client("b:1", {"transactional.id": "mine"})


def test_secrets_are_resolved_late_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("b:1", {"sasl.password": "${env:KAFKA_SECRET}"})
    monkeypatch.setenv("KAFKA_SECRET", "hush")
    assert client.settings()["sasl.password"] == "hush"
    assert "KAFKA_SECRET" not in repr(client)
    assert "sasl" not in repr(KafkaSettings("b:1", "p", properties={"sasl.password": "hush"}))


def test_error_that_waiting_does_not_fix_is_definite() -> None:
    assert not sink_error("_AUTHENTICATION", "x").retryable
    assert sink_error("_TRANSPORT", "x").retryable
    assert isinstance(sink_error("_FENCED", "x"), TransientSinkError)


def test_messages_of_postgresql_name_its_database() -> None:
    batch = changes(SCHEMA, [("c", None, {"id": 1, "name": "a"})])
    xid = pa.array(["7"]).dictionary_encode()
    batch = replace(batch, origin=batch.origin.set_column(2, ORIGIN.field("txn"), xid))
    envelopes = replace(ENVELOPES, connector="postgresql", database="app")
    made = message_format(SETTINGS, envelopes).messages(batch, 0, {})
    source = json.loads(made.column("value")[0].as_py())["source"]
    assert (source["connector"], source["db"], source["schema"]) == ("postgresql", "app", "shop")


@pytest.mark.parametrize("folder", ["confluent_kafka.libs", "confluent_kafka/.dylibs"])
def test_librdkafka_is_found_where_wheels_bundle_it(tmp_path: Path, folder: str) -> None:
    library = tmp_path / folder / "librdkafka-5f3c.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert library_path(tmp_path / "confluent_kafka") == library


def test_librdkafka_of_the_system_is_used_if_none_is_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", {"rdkafka": "librdkafka.so.1"}.get)
    assert library_path(tmp_path / "confluent_kafka") == "librdkafka.so.1"
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(ConfigError, match="librdkafka was not found"):
        library_path(tmp_path / "confluent_kafka")


def test_installed_confluent_kafka_has_librdkafka() -> None:
    assert "rdkafka" in str(library_path(Path(confluent_kafka.__file__).parent))


@pytest.mark.parametrize("room", [True, False])
def test_messages_wait_as_long_as_some_of_them_find_room(monkeypatch: pytest.MonkeyPatch, room: bool) -> None:
    """A queue that is full each time, with room for one message, or none, in between."""
    rows, asked = 6, []

    def full(address: int) -> int:
        job = np.ctypeslib.as_array((ctypes.c_int64 * kernel.JOB).from_address(address))
        asked.append(int(job[kernel.NEXT]))
        time.sleep(0.1)
        job[kernel.NEXT] += room
        return -184 if job[kernel.NEXT] < rows else 0

    monkeypatch.setattr(librdkafka.kernel, "produce", full)
    keys = pa.array([b"k"] * rows)
    messages = MessageColumns(keys, keys, None, np.zeros(rows, np.int32), np.ones(rows, np.uint8))
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        if room:
            producer.produce("t", messages, 0.25)
            assert asked == list(range(rows))
        else:
            with pytest.raises(KafkaError):
                producer.produce("t", messages, 0.25)
            assert set(asked) == {0}
    finally:
        producer.close()
