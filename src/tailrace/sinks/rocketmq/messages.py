r"""Messages as RocketMQ stores and sends them: many at once, as Arrow columns; and read back. Pure.

    one of a batch that is sent     size, magic 0, CRC 0, flag 0, body length, body, properties length,
                                    properties
    one that a broker returns       size, magic, CRC, queue, flag, offset, place in the store, flags, times
                                    and hosts, body, topic, properties

Properties are text: `name \1 value \2`. Ours:

    TAGS                        the table
    KEYS, __SHARDINGKEY         the key; without one, only the latter: the table
    _seq, _op, _row             see `sinks.messages.outgoing`
    _stream, _batch             who has sent it, with which batch

Source: apache/rocketmq 5.5.0 `MessageDecoder`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sinks.rocketmq.failure import too_large

TAG, KEY, SHARDING_KEY = "TAGS", "KEYS", "__SHARDINGKEY"
SEQ, OP, ROW, STREAM, BATCH = "_seq", "_op", "_row", "_stream", "_batch"
_NAME_END, _VALUE_END = "\1", "\2"
#: Most bytes of a message's properties.
_MOST_PROPERTIES = 32767
#: Bytes of a message that is sent beside its body and its properties.
_HEADER = struct.calcsize(">iiiii")
_OVERHEAD = _HEADER + 2
#: Magic numbers of stored messages: with 1 and with 2 bytes for the length of the topic's name.
_MAGIC_1, _MAGIC_2 = 0xDAA320A7, 0xDAA320AB
#: Flags of a stored message: its hosts have IPv6 addresses.
_BORN_V6, _STORED_V6 = 1 << 4, 1 << 5


def tag_of(table: str) -> str:
    """A table's tag: the name, without what filters of consumers cannot contain."""
    return re.sub(r"[|\s\x00-\x1f]", "_", table)


def encoded(messages: pa.RecordBatch, tag: str, stream: str, batch: int, most_bytes: int) -> pa.BinaryArray:
    """Each message as a part of the body of a request.

    Args:
        messages: columns of `outgoing.OUTGOING`.
        tag: the table's.
        stream: who sends them.
        batch: with which batch.
        most_bytes: most bytes of one.

    Raises:
        SinkError: one is too large.
    """
    keys, bodies = messages.column("key"), messages.column("value")
    properties = _properties(messages, tag, stream, batch)
    property_sizes = pc.binary_length(properties).to_numpy()
    body_sizes = pc.binary_length(bodies).to_numpy()
    if len(keys) and (largest := int(property_sizes.max())) > _MOST_PROPERTIES:
        raise too_large("the key", largest // 2, _MOST_PROPERTIES // 2)
    sizes = property_sizes + body_sizes + _OVERHEAD
    if len(keys) and (largest := int(sizes.max())) > most_bytes:
        raise too_large("the value", largest, most_bytes)
    heads = np.zeros((len(keys), 5), ">i4")
    heads[:, 0], heads[:, 4] = sizes, body_sizes
    lengths = property_sizes.astype(">i2")
    parts = [_fixed(heads, _HEADER), bodies, _fixed(lengths, 2), properties]
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


def _fixed(array: np.ndarray, width: int) -> pa.BinaryArray:
    """The bytes of each row of `array`."""
    offsets = np.arange(len(array) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(array))]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers)


def _properties(messages: pa.RecordBatch, tag: str, stream: str, batch: int) -> pa.BinaryArray:
    key = messages.column("key")
    joined = pc.binary_join_element_wise
    nothing = pa.scalar(b"")
    of_key = joined(_name(KEY), key, _name(SHARDING_KEY, ended=True), key, _VALUE_END.encode(), nothing)
    of_row = joined(_name(ROW), messages.column("row").cast(pa.binary()), _VALUE_END.encode(), nothing)
    constant = _named(TAG, tag) + _named(STREAM, stream) + _named(BATCH, str(batch)) + _name(SEQ)
    return joined(
        pa.scalar(constant),
        messages.column("seq").cast(pa.binary()),
        _name(OP, ended=True),
        messages.column("op").cast(pa.binary()),
        _VALUE_END.encode(),
        pc.coalesce(of_key, pa.scalar(_named(SHARDING_KEY, tag))),
        pc.coalesce(of_row, nothing),
        nothing,
    )


def _name(name: str, *, ended: bool = False) -> bytes:
    return f"{_VALUE_END if ended else ''}{name}{_NAME_END}".encode()


def _named(name: str, value: str) -> bytes:
    return f"{name}{_NAME_END}{value}{_VALUE_END}".encode()


@dataclass(frozen=True)
class Stored:
    """A message that a broker returns.

    Args:
        offset: its offset in its queue.
        body: its body.
        properties: its properties by name.
    """

    offset: int
    body: bytes
    properties: Mapping[str, str]


def stored(data: bytes) -> Iterator[Stored]:
    """The messages of an answer to PULL_MESSAGE.

    Raises:
        ValueError: they have another form.
    """
    at = 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in (_MAGIC_1, _MAGIC_2) or size <= 0 or at + size > len(data):
            raise ValueError(f"a stored message of {size} bytes with magic number {magic:#x}")
        try:
            yield _stored(data[at : at + size], wide=magic == _MAGIC_2)
        except struct.error as error:
            raise ValueError(f"a stored message ends too early: {error}") from None
        at += size


def _stored(message: bytes, *, wide: bool) -> Stored:
    (offset,) = struct.unpack_from(">q", message, 20)
    (flags,) = struct.unpack_from(">i", message, 36)
    at = 48 + (20 if flags & _BORN_V6 else 8) + 8 + (20 if flags & _STORED_V6 else 8) + 12
    (size,) = struct.unpack_from(">i", message, at)
    body = message[at + 4 : at + 4 + size]
    at += 4 + size
    (topic,) = struct.unpack_from(">h" if wide else ">b", message, at)
    at += (2 if wide else 1) + topic
    (size,) = struct.unpack_from(">h", message, at)
    text = message[at + 2 : at + 2 + size].decode()
    pairs = (pair.partition(_NAME_END) for pair in text.split(_VALUE_END) if pair)
    return Stored(offset, body, {name: value for name, _, value in pairs})
