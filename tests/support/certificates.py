"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority with its files in a directory.

    Attributes:
        file: its certificate.
    """

    def __init__(self, directory: Path, name: str = "an authority of tests") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        usage = {
            name: name in ("key_cert_sign", "crl_sign", "digital_signature")
            for name in (
                *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
                *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
            )
        }
        builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        self.file = directory / "ca.pem"
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def sign(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Files of a certificate for 127.0.0.1 and `hosts`, or for a user, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key.public_key())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([address, *map(x509.DNSName, hosts)])
        builder = builder.add_extension(names, critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        cert, key_file = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        key_file.write_bytes(
            key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        key_file.chmod(0o600)
        return cert, key_file


_PEM = serialization.Encoding.PEM


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
