"""How an archive's bytes are stored: in frames, compressed and, with a key, encrypted.

    file   = magic "TRARCHV1", sealed u8, salt 32, frame*
    frame  = kind u8, stored bytes u32, plain bytes u32, body
    body   = zstd(plain) and a digest, or AES-256-GCM(zstd(plain)) with its tag, 16 bytes either

Each file has a key of its own, derived from the archive's by HKDF-SHA256 with the file's salt and its name:
a file under another name, or of another archive, cannot be opened. The nonce is the number of the frame, and
the frame's head is authenticated: frames cannot be exchanged, left out or added in the midst.
The last frame is of the kind END: a file that was cut off has none.

Without a key, SHA-256 of the same tells what was damaged or exchanged; it does not protect from somebody who
writes to the archive on purpose.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, StateError

_MAGIC = b"TRARCHV1"
_SALT, _TAG, _KEY = 32, 16, 32
_FRAME = struct.Struct("<BII")
#: Kinds of frames: header, events, index, end.
HEADER, EVENTS, INDEX, END = 1, 2, 3, 4
#: Given kind and plain size of a frame, whether to skip it.
Skip = Callable[[int, int], bool]
_CODEC = pa.Codec("zstd", compression_level=1)
#: No frame is larger: an event of the log has at most 1 GiB.
LARGEST_FRAME = 3 << 29


@dataclass(frozen=True)
class Frame:
    """One frame.

    Args:
        kind: HEADER, EVENTS or INDEX.
        size: bytes of its content.
        data: its content; None: it was not needed.
    """

    kind: int
    size: int
    data: bytes | None


def _none(kind: int, size: int) -> bool:  # noqa: ARG001
    return False


class _Digests:
    """In place of a cipher where there is no key: adds a digest, and checks it.

    Args:
        begin: what the digests begin with.
    """

    def __init__(self, begin: bytes) -> None:
        self._begun = hashlib.sha256(begin)

    def encrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        return data + self._of(nonce, data, head)

    def decrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        """The data. Raises InvalidTag."""
        plain = data[:-_TAG]
        if not hmac.compare_digest(data[-_TAG:], self._of(nonce, plain, head)):
            raise InvalidTag
        return plain

    def _of(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        found = self._begun.copy()
        for part in (nonce, head, data):
            found.update(part)
        return found.digest()[:_TAG]


class SealingKey:
    """The key of an archive.

    Args:
        raw: its 32 bytes; None: the archive is not encrypted.
        archive: the archive's id.
    """

    def __init__(self, raw: bytes | None, archive: str) -> None:
        self._raw, self._archive = raw, archive

    @property
    def is_set(self) -> bool:
        """Whether files are encrypted."""
        return self._raw is not None

    def of_file(self, name: str, salt: bytes) -> AESGCM | _Digests:
        """The cipher of a file."""
        info = f"tailrace archive {self._archive} {name}".encode()
        if self._raw is None:
            return _Digests(salt + info)
        return AESGCM(HKDF(SHA256(), _KEY, salt, info).derive(self._raw))

    def __repr__(self) -> str:
        return "SealingKey(***)"


def raw_key(secret: Secret | None) -> bytes | None:
    """The 32 bytes of a key in base64 or hex.

    Raises:
        ConfigError: it is no such key, or its file or variable does not exist.
    """
    if secret is None:
        return None
    text = secret.resolve("`archiveKey`").strip()
    try:
        found = bytes.fromhex(text) if len(text) == 2 * _KEY else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        found = b""
    if len(found) != _KEY:
        raise ConfigError(
            "`archiveKey` is not a key",
            "needed: 32 bytes in base64 or hex",
            "openssl rand -base64 32 > archive.key; chmod 600 archive.key; archiveKey: ${file:archive.key}",
            code="TR-8205",
        )
    return found


class Writable(Protocol):
    """What frames are written to."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""


class SealedWriter:
    """Writes the frames of one file.

    Args:
        file: where to.
        name: the file's name in the archive.
        key: the archive's key.
    """

    def __init__(self, file: Writable, name: str, key: SealingKey) -> None:
        salt = os.urandom(_SALT)
        self._file, self._cipher = file, key.of_file(name, salt)
        self._number = 0
        file.write(_MAGIC + bytes([key.is_set]) + salt)

    def write(self, kind: int, plain: bytes | memoryview) -> None:
        """Write a frame."""
        body = _CODEC.compress(plain, asbytes=True)
        head = _FRAME.pack(kind, len(body) + _TAG, len(plain))
        self._file.write(head)
        self._file.write(self._cipher.encrypt(_nonce(self._number), body, head))
        self._number += 1

    def end(self) -> None:
        """Write the last frame."""
        self.write(END, b"")


class SealedReader:
    """Reads the frames of one file.

    Args:
        file: where from, at its begin.
        name: the file's name in the archive.
        key: the archive's key.

    Raises:
        StateError: the file is of another kind.
        ConfigError: the key is missing, or the file is not encrypted.
    """

    def __init__(self, file: BinaryIO, name: str, key: SealingKey) -> None:
        self._file, self._name = file, name
        head = file.read(len(_MAGIC) + 1 + _SALT)
        if len(head) != len(_MAGIC) + 1 + _SALT or not head.startswith(_MAGIC):
            raise damaged(name, "it does not begin as a file of an archive")
        is_sealed = head[len(_MAGIC)] == 1
        if head[len(_MAGIC)] > 1:
            raise damaged(name, "it does not begin as a file of an archive")
        require_key(is_sealed=is_sealed, is_set=key.is_set)
        self._cipher = key.of_file(name, head[len(_MAGIC) + 1 :])

    def frames(self, most_plain: int = LARGEST_FRAME, skip: Skip = _none) -> Iterator[Frame]:
        """The frames up to the last one.

        Args:
            most_plain: bytes that a frame may claim.
            skip: given kind and plain size, whether a frame's content is not needed.

        Raises:
            StateError: a frame is damaged or missing.
        """
        number = 0
        while True:
            head = self._file.read(_FRAME.size)
            if len(head) != _FRAME.size:
                raise damaged(self._name, "it ends too early")
            kind, size, plain_size = _FRAME.unpack(head)
            if plain_size > most_plain or size > plain_size + (plain_size >> 6) + 1024:
                raise damaged(self._name, f"frame {number} claims {plain_size} bytes")
            if kind != END and skip(kind, plain_size):
                self._file.seek(size, os.SEEK_CUR)
                yield Frame(kind, plain_size, None)
                number += 1
                continue
            body = self._file.read(size)
            if len(body) != size:
                raise damaged(self._name, "it ends too early")
            data = self._opened(number, body, head, plain_size)
            if kind == END:
                if plain_size or self._file.read(1):
                    raise damaged(self._name, "it has bytes behind its end")
                return
            yield Frame(kind, plain_size, data)
            number += 1

    def _opened(self, number: int, body: bytes, head: bytes, size: int) -> bytes:
        try:
            body = self._cipher.decrypt(_nonce(number), body, head)
        except InvalidTag:
            if isinstance(self._cipher, _Digests):
                raise damaged(self._name, f"the digest of frame {number} is wrong") from None
            raise StateError(
                f"`{self._name}` of the archive cannot be decrypted",
                "the key is another one, or the file was changed or exchanged",
                "is `archiveKey` the key that the archive was written with?",
                code="TR-8206",
            ) from None
        if not size:
            return b""
        try:
            plain = _CODEC.decompress(body, decompressed_size=size, asbytes=True)
        except (OSError, ValueError, pa.ArrowException):
            raise damaged(self._name, f"frame {number} cannot be decompressed") from None
        if len(plain) != size:
            raise damaged(self._name, f"frame {number} has another length than it says")
        return bytes(plain)


def require_key(*, is_sealed: bool, is_set: bool) -> None:
    """Refuse an encrypted archive without a key, and a key for one that is not encrypted.

    Raises:
        ConfigError: they do not fit.
    """
    if is_sealed != is_set:
        raise ConfigError(
            "the archive is encrypted" if is_sealed else "the archive is not encrypted",
            f"`archiveKey` is {'not set' if is_sealed else 'set'}",
            "set `archiveKey` to the key that it was written with" if is_sealed else "remove `archiveKey`",
            code="TR-8206",
        )


def damaged(name: str, why: str) -> StateError:
    """The error for a file of the archive that is not as it was written."""
    return StateError(
        f"`{name}` of the archive is damaged",
        why,
        "restore the file from a copy of the archive: nothing that comes after a damaged part is read",
        code="TR-8204",
    )


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
