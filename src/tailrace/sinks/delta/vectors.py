"""Deletion vectors: which rows of a data file are deleted, as Delta's protocol stores them.

A vector is a set of row numbers, a Roaring bitmap of 64 bits in the portable form. Its descriptor, part of
the file's `add` action, says where it lies: in a file beside the data files, or in the log itself.

Source: Delta transaction log protocol, "Deletion Vectors" (format, descriptor schema, file format).
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyroaring import BitMap64

from tailrace.errors import StateError

#: Begins a vector whose bitmap is in the portable form.
_PORTABLE = 1681511377
#: The version of the file format, its first byte.
_FILE_VERSION = b"\x01"
_UUID_LENGTH = 20
#: Base 85 in the alphabet of ZeroMQ (RFC 32), which Python has from 3.13 on, and in that of Python's own.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _TO_B85 = str.maketrans(_B85, _Z85), str.maketrans(_Z85, _B85)


def write_vector(rows: BitMap64, root: str) -> dict[str, Any]:
    """Put a vector into a file of its own.

    Args:
        rows: numbers of the deleted rows.
        root: the table's directory.

    Returns:
        Its descriptor.
    """
    name = uuid.uuid4()
    data = struct.pack("<i", _PORTABLE) + rows.serialize()
    framed = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    _file(root, "", name).write_bytes(_FILE_VERSION + framed)
    return {
        "storageType": "u",
        "pathOrInlineDv": base64.b85encode(name.bytes).decode().translate(_TO_Z85),
        "offset": len(_FILE_VERSION),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def read_vector(descriptor: Mapping[str, Any], root: str) -> BitMap64:
    """The rows that a vector says are deleted.

    Args:
        descriptor: where it lies.
        root: the table's directory.

    Raises:
        StateError: it is not what its descriptor or its checksum says.
    """
    place, size = descriptor["pathOrInlineDv"], descriptor["sizeInBytes"]
    if descriptor["storageType"] == "i":
        data = _decoded(place)[:size]
        whole = True
    else:
        if descriptor["storageType"] == "u":
            prefix, name = place[:-_UUID_LENGTH], place[-_UUID_LENGTH:]
            path = _file(root, prefix, uuid.UUID(bytes=_decoded(name)))
        else:
            path = Path(unquote(urlparse(place).path))
        with path.open("rb") as file:
            file.seek(descriptor.get("offset", len(_FILE_VERSION)))
            (length,) = struct.unpack(">i", file.read(4))
            data = file.read(size)
            whole = length == size and struct.unpack(">I", file.read(4))[0] == zlib.crc32(data)
    if not whole or data[:4] != struct.pack("<i", _PORTABLE):
        raise StateError(
            f"deletion vector `{place}` of the table at {root} cannot be read",
            f"found {len(data)} bytes that begin with {data[:4].hex()} or do not fit their checksum, needed "
            f"{size} bytes in the portable form of Delta's protocol",
            "if the file is whole: REORG TABLE ... APPLY (PURGE) writes the table anew without vectors",
        )
    return BitMap64.deserialize(data[4:])


def _file(root: str, prefix: str, name: uuid.UUID) -> Path:
    return Path(root) / prefix / f"deletion_vector_{name}.bin"


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))
