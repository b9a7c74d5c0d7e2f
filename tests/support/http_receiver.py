"""An HTTP server that keeps what is posted to it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Post:
    """A request.

    Args:
        path: its path.
        headers: names in small letters.
        body: decompressed.
        status: of the answer.
    """

    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 200


@dataclass
class Receiver:
    """What a server has received.

    Args:
        url: its address.
        status: of its answers.
        next_statuses: of its next answers, instead.
        headers: of its answers.
    """

    url: str
    status: int = 200
    posts: list[Post] = field(default_factory=list)
    next_statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def bodies(self, path: str) -> list[bytes]:
        """The bodies posted to a path."""
        return [post.body for post in list(self.posts) if post.path == path]


@contextmanager
def http_receiver() -> Iterator[Receiver]:
    """A server on loopback."""
    received: Receiver

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0
        protocol_version = "HTTP/1.1"  # connections are kept, as servers do
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = received.next_statuses.pop(0) if received.next_statuses else received.status
            headers = {k.lower(): v for k, v in self.headers.items()}
            received.posts.append(Post(self.path, headers, body, status))
            self.send_response(status)
            for name, value in received.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Receiver(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield received
        finally:
            server.shutdown()
