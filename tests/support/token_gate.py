"""An HTTP server that wants a token, in front of one that wants none."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_REFUSAL = {"error": {"message": "no such token", "type": "NotAuthorizedException", "code": 401}}


@contextmanager
def token_gate(behind: str, token: str) -> Iterator[str]:
    """The address of a server on loopback that passes on requests with the token.

    Args:
        behind: the address of the server that answers them.
        token: a bearer token.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30.0

        def do_GET(self) -> None:
            self._pass_on()

        do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names that the base class looks for

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Bearer {token}":
                self._answer(401, "application/json", json.dumps(_REFUSAL).encode())
                return
            kept = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
            request = urllib.request.Request(f"{behind}{self.path}", body or None, kept, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self._answer(answer.status, answer.headers.get("Content-Type"), answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._answer(error.code, error.headers.get("Content-Type"), error.read())

        def _answer(self, status: int, type_: str | None, body: bytes) -> None:
            self.send_response(status)
            if type_ is not None:
                self.send_header("Content-Type", type_)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
