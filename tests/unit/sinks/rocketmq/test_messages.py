"""RocketMQ's frames and messages, without a broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct

import pyarrow as pa
import pytest

from tailrace.config.message_sinks import RocketMqSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.sinks.messages.outgoing import OUTGOING
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq.channel import _bodies
from tailrace.sinks.rocketmq.failure import failure
from tailrace.sinks.rocketmq.frames import Reply, Signer, answer, parsed, request
from tailrace.sinks.rocketmq.messages import encoded, stored, tag_of


def outgoing(*keys: bytes | None, size: int = 5) -> pa.RecordBatch:
    count = len(keys)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array([bytes([65 + n % 26]) * (size + n) for n in range(count)], pa.binary()),
        pa.array([f"{n:032}" for n in range(count)]),
        pa.array(["c"] * count),
        pa.array([None if key else f"row.{n}" for n, key in enumerate(keys)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTGOING)


def in_store(sent: bytes, offset: int, *, v6: bool = False) -> bytes:
    """A message of a batch as a broker stores it (`MessageDecoder.decode`)."""
    (body_size,) = struct.unpack_from(">i", sent, 16)
    body, properties = sent[20 : 20 + body_size], sent[22 + body_size :]
    host = (b"\0" * 16 if v6 else b"\x7f\0\0\1") + struct.pack(">i", 1)
    topic = b"topic"
    rest = struct.pack(">iiiqqi", 0, 3, 0, offset, 0, 0b110000 if v6 else 0)
    rest += struct.pack(">q", 0) + host + struct.pack(">q", 0) + host + struct.pack(">iq", 0, 0)
    rest += struct.pack(">i", len(body)) + body + bytes([len(topic)]) + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", 8 + len(rest), 0xDAA320A7) + rest


@pytest.mark.parametrize("v6", [False, True])
def test_messages_that_a_broker_has_stored_are_those_that_were_sent(v6: bool) -> None:
    messages = outgoing(b'{"id":1}', '{"id":"ü"}'.encode(), None)
    sent = encoded(messages, "shop.t", "stream/sink", 7, 1 << 20).to_pylist()
    assert [struct.unpack_from(">i", message)[0] for message in sent] == [len(message) for message in sent]
    found = list(stored(b"".join(in_store(m, n, v6=v6) for n, m in enumerate(sent))))
    assert [m.offset for m in found] == [0, 1, 2]
    assert [m.body for m in found] == messages.column("value").to_pylist()
    common = {"TAGS": "shop.t", "_stream": "stream/sink", "_batch": "7", "_op": "c"}
    key = '{"id":1}'
    assert found[0].properties == {**common, "_seq": "0" * 32, "KEYS": key, "__SHARDINGKEY": key}
    assert found[1].properties["KEYS"] == '{"id":"ü"}'
    assert (found[2].properties["__SHARDINGKEY"], found[2].properties["_row"]) == ("shop.t", "row.2")
    assert "KEYS" not in found[2].properties


def test_bodies_of_requests_hold_all_messages_within_their_limit() -> None:
    sent = encoded(outgoing(*[b"k"] * 50), "t", "s", 1, 1 << 20)
    for rows in (sent, sent.slice(7), sent.slice(3, 1)):
        bodies = _bodies(rows, 900)
        assert b"".join(bodies) == b"".join(rows.to_pylist())
        assert max(map(len, bodies)) <= 900
    assert len(_bodies(sent, 1)) == 50


def test_messages_that_brokers_do_not_take_are_refused() -> None:
    with pytest.raises(SinkError) as caught:
        encoded(outgoing(b"k", size=3000), "t", "s", 1, 2000)
    assert caught.value.code == "TR-7805"
    with pytest.raises(SinkError) as caught:
        encoded(outgoing(b"k" * 20_000), "t", "s", 1, 1 << 20)
    assert (caught.value.code, "the key" in caught.value.message) == ("TR-7805", True)


@pytest.mark.parametrize("cut", [1, 9, 60, 100])
def test_stored_message_that_is_cut_off_is_an_error_or_none(cut: int) -> None:
    (sent,) = encoded(outgoing(b"k"), "t", "s", 1, 1 << 20).to_pylist()
    whole = in_store(sent, 0)
    broken = struct.pack(">i", cut) + whole[4:cut] if cut > 8 else whole[:cut]
    if cut < 8:
        assert list(stored(broken)) == []
    else:
        with pytest.raises(ValueError, match="stored message"):
            list(stored(broken))


def test_signature_covers_all_fields_by_name_and_the_body() -> None:
    signed = Signer("me", "secret").sign({"topic": "t", "b": "2"}, b"body")
    content = b"me" + b"2" + b"t" + b"body"  # AccessKey, b, topic
    assert (
        signed["Signature"] == base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    )


def test_request_and_answer_have_the_form_of_the_protocol() -> None:
    sent = request(105, 7, {"topic": "t"}, b"body")
    assert struct.unpack_from(">i", sent)[0] == len(sent) - 4
    number, reply = answer(sent[4:])
    assert (number, reply.code, reply.fields, reply.body) == (7, 105, {"topic": "t"}, b"body")


@pytest.mark.parametrize(
    "frame", [b"", b"\0\0", b"\0\0\0\xff{}", b"\1\0\0\0", b"\0\0\0\2[]", b"\0\0\0\2{}", b"\0\0\0\1{"]
)
def test_frame_that_is_none_is_an_error(frame: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's, too
        answer(frame)


def test_keys_without_quotation_marks_are_read() -> None:
    assert parsed(b'{"a":{0:"1:2", 15 :"x\\"3:"},"n":5}') == {"a": {"0": "1:2", "15": 'x"3:'}, "n": 5}


def test_answers_become_errors_of_the_right_kind() -> None:
    for code, expected, transient in (
        (frames.NO_PERMISSION, "TR-7803", False),
        (frames.MESSAGE_ILLEGAL, "TR-7805", False),
        (frames.FLUSH_DISK_TIMEOUT, "TR-7804", True),
        (frames.TOPIC_NOT_EXIST, "TR-7808", True),
        (1, "TR-7801", True),
    ):
        error = failure(Reply(code, "why", {}, b""), "asking")
        assert (error.code, isinstance(error, TransientSinkError)) == (expected, transient)
    assert failure(Reply(1, "message size exceeded, ...", {}, b""), "asking").code == "TR-7805"


def test_tag_has_nothing_that_filters_of_consumers_cannot_contain() -> None:
    assert tag_of("a b|c.d\te") == "a_b_c.d_e"


@pytest.mark.parametrize(
    "given",
    [
        {"name_servers": ""},
        {"name_servers": "host"},
        {"name_servers": "user@host:1"},
        {"name_servers": "h:1", "access_key": "k"},
        {"name_servers": "h:1", "secret_key": Secret("s")},
        {"name_servers": "h:1", "tls_ca": "ca.pem"},
        {"name_servers": "h:1", "topic_queues": 0},
        {"name_servers": "h:1", "decimal_handling_mode": "odd"},
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        RocketMqSettings(topic_prefix="p", **given)  # type: ignore[arg-type]
