"""Answers to a server's requests for the password that keep the password safe.

    mysql_native_password, caching_sha2_password (short), client_ed25519, parsec  a scramble or signature
                                                        of the server's challenge: answered on any connection
    caching_sha2_password (full form), sha256_password  the password: over TLS as it is; else encrypted by the
                                                        server's key, if it is pinned or may be retrieved
    mysql_clear_password, dialog                        the password: over TLS, or where allowed
    mysql_old_password                                  never: its scramble reveals the password

The server chooses the method, and may change it halfway (an "auth switch"). So can a man in the middle,
unless TLS verifies the certificate. A challenge must have all its 20 bytes: the scramble of a shorter one
would allow looking the password up in a precomputed table.

Source: MySQL source documentation, "Authentication Methods"; MariaDB documentation, "Authentication Plugin -
PARSEC".
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from pymysql import _auth

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, DecodeError, SourceError

CHALLENGE_BYTES = 20
_SIGNED_BYTES = 32
#: `parsec`: bytes of the salt; rounds of the derivation, which a server may double so many times.
_SALT_BYTES, _FIRST_ROUNDS, _MOST_ROUNDS = 18, 1024, 3
_EXTRA = 0x01
_FAST_OK, _FULL = 3, 4
#: How `dialog` asks for a password: modules of PAM have words of their own, or none.
_PROMPTS = (b"password:", b"")
#: First bytes of a last question: with the answer shown, and hidden.
_LAST = (b"\x03", b"\x05")
#: Prompts of `dialog` that are answered: password and perhaps a second one for it.
_MOST_PROMPTS = 8

_TLS_FIRST = "use TLS: give the server a certificate and set tlsMode to required or, safer, verify-ca"


class Peer(Protocol):
    """The connection, as the methods need it."""

    password: bytes
    salt: bytes
    options: SourceOptions
    doing: str

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection runs over TLS."""

    def exchange(self, data: bytes) -> Any:
        """Send a packet of the log-in; returns the server's answer."""

    def next_packet(self) -> Any:
        """The next packet."""


class _Method:
    """A method of authentication.

    Args:
        peer: the connection.
    """

    name = ""

    def __init__(self, peer: Any) -> None:
        self._peer: Peer = peer

    def authenticate(self, packet: Any) -> Any:
        """Answer the server's request.

        Args:
            packet: the request to switch to this method, read up to the challenge, or a later one of it.

        Returns:
            The server's next packet.

        Raises:
            SourceError: the answer would reveal the password.
            DecodeError: the request is malformed.
        """
        raise NotImplementedError

    def _challenge(self, packet: Any, size: int = CHALLENGE_BYTES) -> bytes:
        if not packet.is_auth_switch_request():
            raise DecodeError(f"{self._peer.doing} failed: `{self.name}` has no such step", code="TR-3108")
        found: bytes = packet.read_all()
        return require_challenge(self._peer, found, size)

    def _refused(self, why: str, *ways: str) -> SourceError:
        return SourceError(
            f"{self._peer.doing} failed: the server {why}, over a connection without TLS",
            f"authentication method `{self.name}`; the password was not sent",
            "; or ".join([_TLS_FIRST, *ways]),
            code="TR-3103",
        )


def require_challenge(peer: Peer, found: bytes, size: int = CHALLENGE_BYTES) -> bytes:
    """The challenge that the server sent, without the NUL after it.

    Raises:
        DecodeError: it has the wrong length, and there is a password to protect.
    """
    challenge = found[:size]
    if peer.password and (len(challenge) < size or len(found) > size + 1):
        raise DecodeError(
            f"{peer.doing} failed: the server's challenge is malformed",
            f"it has {len(found)} bytes instead of {size}; the password was not used",
            code="TR-3108",
        )
    return challenge


class _Native(_Method):
    name = "mysql_native_password"

    def authenticate(self, packet: Any) -> Any:
        challenge = self._challenge(packet)
        return self._peer.exchange(_auth.scramble_native_password(self._peer.password, challenge))


class _Signed(_Method):
    name = "client_ed25519"

    def authenticate(self, packet: Any) -> Any:
        challenge = self._challenge(packet, _SIGNED_BYTES)
        try:
            signature = _auth.ed25519_password(self._peer.password, challenge)
        except RuntimeError:
            raise SourceError(
                f"{self._peer.doing} failed: authentication by `{self.name}` needs the package PyNaCl",
                None,
                "pip install 'tailrace[mariadb]'",
                code="TR-3105",
            ) from None
        return self._peer.exchange(signature)


class _Parsec(_Method):
    """MariaDB's: a signature by a key that is derived from the password."""

    name = "parsec"

    def authenticate(self, packet: Any) -> Any:
        peer = self._peer
        challenge = self._challenge(packet, _SIGNED_BYTES)
        terms: bytes = peer.exchange(b"").get_all_data().removeprefix(b"\x01")  # asks for the salt
        if len(terms) != 2 + _SALT_BYTES or terms[:1] != b"P" or terms[1] > _MOST_ROUNDS:
            raise DecodeError(
                f"{peer.doing} failed: the server's terms for `{self.name}` are malformed", code="TR-3108"
            )
        derive = PBKDF2HMAC(hashes.SHA512(), _SIGNED_BYTES, terms[2:], _FIRST_ROUNDS << terms[1])
        key = ed25519.Ed25519PrivateKey.from_private_bytes(derive.derive(peer.password))
        nonce = os.urandom(_SIGNED_BYTES)
        return peer.exchange(nonce + key.sign(challenge + nonce))


class _Sha256(_Method):
    """The password itself: over TLS, or encrypted by the server's public key."""

    name = "sha256_password"
    _ask_for_key = b"\x01"

    def authenticate(self, packet: Any) -> Any:
        peer = self._peer
        if packet.is_auth_switch_request():
            peer.salt = self._challenge(packet)
            return self._full(None)
        # the server's default method: the first answer has already requested the key
        return self._full(packet.get_all_data()[1:])

    def _full(self, offered: bytes | None) -> Any:
        """Send the password; `offered`: a key that the server has already sent."""
        peer = self._peer
        if not peer.password or peer.is_encrypted:
            return peer.exchange(peer.password + b"\0")
        pinned = peer.options.server_public_key_file
        if pinned is not None:
            return peer.exchange(_encrypted(peer, _pinned_key(pinned)))
        if not peer.options.allow_public_key_retrieval:
            raise self._refused(
                "requests the password, encrypted by a key of its own that is not verified",
                "set serverPublicKeyFile to a copy of its key (public_key.pem in its data directory)",
                "set allowPublicKeyRetrieval to true, which trusts whoever answers",
            )
        if offered is None:
            packet = peer.exchange(self._ask_for_key)
            if not packet.is_extra_auth_data():
                raise DecodeError(f"{peer.doing} failed: the server did not send its key", code="TR-3108")
            offered = packet.get_all_data()[1:]
        try:
            key = serialization.load_pem_public_key(offered)
        except (ValueError, TypeError) as error:
            raise DecodeError(
                f"{peer.doing} failed: the key that the server sent is malformed", code="TR-3108"
            ) from error
        return peer.exchange(_encrypted(peer, key))


class _CachingSha2(_Sha256):
    name = "caching_sha2_password"
    _ask_for_key = b"\x02"

    def authenticate(self, packet: Any) -> Any:
        peer = self._peer
        if packet.is_auth_switch_request():
            peer.salt = self._challenge(packet)
            packet = peer.exchange(_auth.scramble_caching_sha2(peer.password, peer.salt))
        data = packet.get_all_data()
        if data[0] != _EXTRA:
            return packet
        if data[1:2] == bytes([_FAST_OK]):
            return peer.next_packet()
        if data[1:2] != bytes([_FULL]):
            raise DecodeError(f"{peer.doing} failed: `{self.name}` has no such step", code="TR-3108")
        return self._full(None)


class _Clear(_Method):
    name = "mysql_clear_password"

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - it is empty
        self._require_allowed()
        return self._peer.exchange(self._peer.password + b"\0")

    def _require_allowed(self) -> None:
        peer = self._peer
        if peer.password and not peer.is_encrypted and not peer.options.allow_cleartext_password:
            raise self._refused("requests the password in clear text", "set allowCleartextPassword to true")


class _Dialog(_Clear):
    """MariaDB's PAM."""

    name = "dialog"

    def authenticate(self, packet: Any) -> Any:
        self._require_allowed()
        prompt: bytes = packet.read_all()
        for _ in range(_MOST_PROMPTS):
            if prompt[1:].strip().lower() not in _PROMPTS:
                raise DecodeError(
                    f"{self._peer.doing} failed: the server requests more than a password", code="TR-3108"
                )
            packet = self._peer.exchange(self._peer.password + b"\0")
            if packet.is_ok_packet() or prompt[:1] in _LAST:
                return packet
            prompt = packet.get_all_data()
        raise DecodeError(
            f"{self._peer.doing} failed: the server requests the password too often", code="TR-3108"
        )


class _Old(_Method):
    name = "mysql_old_password"

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - it is never answered
        raise SourceError(
            f"{self._peer.doing} failed: the server requests `{self.name}`",
            "its scramble reveals the password; it was not sent",
            "ALTER USER ... IDENTIFIED WITH mysql_native_password or a later method",
            code="TR-3104",
        )


def first_answer(peer: Peer, method: str) -> bytes:
    """The part of the first packet that depends on the password.

    Args:
        peer: the connection.
        method: the method that the greeting names.

    Raises:
        DecodeError: the greeting has no challenge.
    """
    if method in ("", _Native.name):
        return _auth.scramble_native_password(peer.password, require_challenge(peer, peer.salt))
    if method == _CachingSha2.name:
        return _auth.scramble_caching_sha2(peer.password, require_challenge(peer, peer.salt))
    if method == _Sha256.name and not peer.is_encrypted:
        peer.salt = require_challenge(peer, peer.salt)
        return b"\x01" if peer.password else b"\0"  # asks for the key
    if method == _Sha256.name:
        return peer.password + b"\0"
    return b""


METHODS: dict[str, type[_Method]] = {
    method.name: method
    for method in (_Native, _CachingSha2, _Sha256, _Clear, _Dialog, _Signed, _Parsec, _Old)
}


def _pinned_key(path: str) -> Any:
    try:
        return serialization.load_pem_public_key(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"serverPublicKeyFile `{path}` cannot be read", error.strerror, code="TR-1102"
        ) from None
    except (ValueError, TypeError):
        raise ConfigError(
            f"serverPublicKeyFile `{path}` is not a public key", "needed: RSA, PEM", code="TR-1102"
        ) from None


def _encrypted(peer: Peer, key: Any) -> bytes:
    if not isinstance(key, rsa.RSAPublicKey):
        raise DecodeError(f"{peer.doing} failed: the server's public key is not an RSA key", code="TR-3108")
    plain = peer.password + b"\0"
    # the server reverses this XOR
    mixed = bytes(b ^ peer.salt[i % CHALLENGE_BYTES] for i, b in enumerate(plain))
    # the protocol's: SHA-1 within OAEP is no weakness
    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303
    try:
        return key.encrypt(mixed, oaep)
    except ValueError as error:
        raise SourceError(
            f"{peer.doing} failed: the server's public key is too short for the password",
            f"it has {key.key_size} bits",
            _TLS_FIRST,
            code="TR-3107",
        ) from error
