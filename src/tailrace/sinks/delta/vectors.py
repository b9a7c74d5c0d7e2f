"""Deletion vectors: which rows of a data file are deleted, as Delta's protocol stores them.

A vector is a set of row numbers: a 64-bit Roaring bitmap in the portable format. Its descriptor, part of the
file's `add` action, gives its location: a file next to the data files, or the log itself.

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

#: Begins a vector whose bitmap is in the portable format.
_PORTABLE = 1681511377
#: The version of the file format, its first byte.
_FILE_VERSION = b"\x01"
_UUID_LENGTH = 20
#: The alphabets of ZeroMQ's base 85 (RFC 32), which Python has from 3.13 on, and of Python's own.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _TO_B85 = str.maketrans(_B85, _Z85), str.maketrans(_Z85, _B85)


def write_vector(rows: BitMap64, root: str) -> dict[str, Any]:
    """Write a vector into a file of its own.

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
    """The numbers of the rows that a vector deletes.

    Args:
        descriptor: its descriptor.
        root: the table's directory.

    Raises:
        StateError: the vector does not match its descriptor or its checksum.
    """
    location, size = descriptor["pathOrInlineDv"], descriptor["sizeInBytes"]
    if descriptor["storageType"] == "i":
        data = _decoded(location)[:size]
        whole = True
    else:
        if descriptor["storageType"] == "u":
            prefix, name = location[:-_UUID_LENGTH], location[-_UUID_LENGTH:]
            path = _file(root, prefix, uuid.UUID(bytes=_decoded(name)))
        else:
            path = Path(unquote(urlparse(location).path))
        with path.open("rb") as file:
            file.seek(descriptor.get("offset", len(_FILE_VERSION)))
            (length,) = struct.unpack(">i", file.read(4))
            data = file.read(size)
            whole = length == size and struct.unpack(">I", file.read(4))[0] == zlib.crc32(data)
    if not whole or data[:4] != struct.pack("<i", _PORTABLE):
        raise StateError(
            f"deletion vector `{location}` of the table at `{root}` cannot be read",
            f"found {len(data)} bytes that begin with {data[:4].hex()} or do not match their checksum, "
            f"needed {size} bytes in the portable format of Delta's protocol",
            "if the file is intact: REORG TABLE ... APPLY (PURGE) rewrites the table without vectors",
            code="TR-7102",
        )
    return BitMap64.deserialize(data[4:])


def _file(root: str, prefix: str, name: uuid.UUID) -> Path:
    return Path(root) / prefix / f"deletion_vector_{name}.bin"


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))
