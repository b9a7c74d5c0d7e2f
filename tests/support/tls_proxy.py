"""A proxy with TLS in front of an HTTP server: it asks for credentials, as the servers' own plugins do."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Proxy:
    """What a proxy is, and has seen.

    Args:
        url: its address.
        ca: the certificate that it is known by, a PEM file.
        asked: the `Authorization` of each request.
    """

    url: str
    ca: str
    asked: list[str | None] = field(default_factory=list)


@contextmanager
def tls_proxy(upstream: str, directory: Path, authorization: str) -> Iterator[Proxy]:
    """A proxy to an HTTP server; it answers 401 to requests without `authorization`."""
    certificate = _certificate(directory)
    target = urlsplit(upstream)
    proxy: Proxy

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60.0

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            given = self.headers.get("Authorization")
            proxy.asked.append(given)
            if given != authorization:
                self._answer(401, b'{"error": "unauthorized"}')
                return
            connection = http.client.HTTPConnection(str(target.hostname), target.port or 80, timeout=60)
            connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            self._answer(answer.status, data)

        do_GET = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - named by the library

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, directory / "key.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        proxy = Proxy(f"https://127.0.0.1:{server.server_port}", str(certificate))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def _certificate(directory: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself; its key is next to it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tailrace test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return path
