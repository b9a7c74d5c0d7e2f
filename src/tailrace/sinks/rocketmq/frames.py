"""RocketMQ's remoting protocol: commands as bytes, and their signature. Pure.

    length        4 bytes, of all that follows
    header length 4 bytes, the first of which is the header's encoding: 0, JSON
    header        {"code", "language", "version", "opaque", "flag", "remark", "extFields"}
    body

An answer has the `opaque` of its request. All numbers are big-endian.

Source: apache/rocketmq 5.5.0 `RemotingCommand`, `RequestCode`, `ResponseCode`, `AclSigner`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Codes of requests.
PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
GET_ROUTE = 105
GET_BROKER_CLUSTERS = 106
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

#: Codes of answers.
SUCCESS = 0
SYSTEM_BUSY = 2
FLUSH_DISK_TIMEOUT = 10
SLAVE_NOT_AVAILABLE = 11
FLUSH_SLAVE_TIMEOUT = 12
MESSAGE_ILLEGAL = 13
SERVICE_NOT_AVAILABLE = 14
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
PULL_NOT_FOUND = 19
PULL_RETRY_IMMEDIATELY = 20
PULL_OFFSET_MOVED = 21

#: A text, or a number that is a key: fastjson writes it without quotation marks.
_TEXT_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|(\d+)(?=\s*:)')
#: Most bytes of a frame that is read.
MOST_BYTES = 64 << 20
#: What the client says that it is: RocketMQ knows this language, and this is a version's number there.
_LANGUAGE, _VERSION = "PYTHON", 401


@dataclass(frozen=True)
class Reply:
    """An answer.

    Args:
        code: its code.
        remark: what it says of an error.
        fields: its fields.
        body: its body.
    """

    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Signer:
    """Signs requests with an access key.

    Args:
        access_key: the key's name.
        secret_key: the key's secret.
    """

    access_key: str
    secret_key: str

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields of a request with its signature."""
        signed = {**fields, "AccessKey": self.access_key}
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        return {**signed, "Signature": base64.b64encode(digest).decode()}


def request(
    code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"", signer: Signer | None = None
) -> bytes:
    """A request as bytes.

    Args:
        code: its code.
        opaque: its number, which the answer has.
        fields: its fields.
        body: its body.
        signer: signs it; None: it is not signed.
    """
    header = json.dumps(
        {
            "code": code,
            "language": _LANGUAGE,
            "version": _VERSION,
            "opaque": opaque,
            "flag": 0,
            "extFields": dict(fields) if signer is None else signer.sign(fields, body),
            "serializeTypeCurrentRPC": "JSON",
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def answer(frame: bytes) -> tuple[int, Reply]:
    """The number of a request and its answer.

    Args:
        frame: the bytes after the length.

    Raises:
        ValueError: these are no answer.
    """
    if len(frame) < 4:
        raise ValueError("a frame of less than 4 bytes")
    (length,) = struct.unpack_from(">I", frame)
    encoding, length = length >> 24, length & 0xFFFFFF
    if encoding != 0 or 4 + length > len(frame):
        raise ValueError(f"a header of encoding {encoding} with {length} bytes in a frame of {len(frame)}")
    header = json.loads(frame[4 : 4 + length])
    if not isinstance(header, dict) or not isinstance(header.get("code"), int):
        raise ValueError("a header without a code")
    fields = {str(name): str(value) for name, value in (header.get("extFields") or {}).items()}
    found = Reply(header["code"], str(header.get("remark") or ""), fields, frame[4 + length :])
    return int(header.get("opaque", -1)), found


def parsed(body: bytes) -> Any:
    """A body in JSON.

    Raises:
        ValueError: it is none.
    """
    return json.loads(_TEXT_OR_KEY.sub(lambda found: found[1] or f'"{found[2]}"', body.decode()))
