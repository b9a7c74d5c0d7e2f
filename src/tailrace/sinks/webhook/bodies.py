"""The bodies of requests, and their signature. Pure.

    {"stream": ..., "batch": 5, "table": "shop.orders", "target": "shop.orders",
     "messages": [{"key": {"id": 10}, "op": "c", "seq": "...", "value": {...}}, ...]}

Keys and values are those of the format, as they are. The signature is that of Standard Webhooks: HMAC-SHA256
over `<id>.<seconds since 1970>.<body>`.

Source: Standard Webhooks, specification 1.0.0.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: What begins a secret whose rest is in base64.
SECRET_PREFIX = "whsec_"  # noqa: S105 - no secret


def key_of(secret: str) -> bytes:
    """The key of a secret.

    Raises:
        ValueError: it begins with `whsec_`, and the rest is no base64.
    """
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows `{SECRET_PREFIX}` is no base64") from None


def signature(key: bytes, id_: str, at_s: int, body: bytes) -> str:
    """The header `webhook-signature`.

    Args:
        key: the secret's.
        id_: the header `webhook-id`.
        at_s: the header `webhook-timestamp`.
        body: the body.
    """
    digest = hmac.new(key, f"{id_}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def head(stream: str, batch: int, table: str, target: str) -> bytes:
    """The beginning of a body, up to its messages."""
    told = {"stream": stream, "batch": batch, "table": table, "target": target}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()[:-1] + b',"messages":['


def portions(
    messages: pa.RecordBatch, start: bytes, most_messages: int, most_bytes: int
) -> Iterator[tuple[int, int, bytes]]:
    """The bodies of messages: for each the first message, their number, and the body.

    Args:
        messages: columns of `outgoing.OUTGOING`.
        start: see `head`.
        most_messages: most messages of a body.
        most_bytes: most bytes of a body, unless one message has more.
    """
    items = _items(messages)
    _, offsets, data = items.buffers()
    ends = np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1]
    room = most_bytes - len(start) - 2
    first = 0
    while first < len(items):
        within = int(np.searchsorted(ends, int(ends[first]) + room, "right")) - 1
        last = min(max(within, first + 1), first + most_messages, len(items))
        # each message but the last is followed by a comma
        text = data.slice(int(ends[first]), int(ends[last] - ends[first]) - 1).to_pybytes()
        yield first, last - first, start + text + b"]}"
        first = last


def _items(messages: pa.RecordBatch) -> pa.BinaryArray:
    """Each message as JSON, with a comma behind it."""
    key = pc.fill_null(messages.column("key"), b"null")
    op, seq = (messages.column(name).cast(pa.binary()) for name in ("op", "seq"))
    parts = [
        b'{"key":',
        key,
        b',"op":"',
        op,
        b'","seq":"',
        seq,
        b'","value":',
        messages.column("value"),
        b"},",
    ]
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


def request_id(identities: pa.StringArray, stream: str, batch: int) -> str:
    """The header `webhook-id`: the same whenever the same messages of a batch are sent."""
    digest = hashlib.sha256(f"{stream}\n{batch}\n".encode())
    for text in identities.to_pylist():
        digest.update(text.encode() + b"\n")
    return f"msg_{digest.hexdigest()[:32]}"
