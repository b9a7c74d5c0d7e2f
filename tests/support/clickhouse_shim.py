"""The engine of ClickHouse behind a small HTTP server, run as a process of its own by `support.clickhouse`.

chdb is that engine as a library. This is not ClickHouse's own HTTP server: it knows a statement, its settings
as parameters, the data of an INSERT in the body, and errors with ClickHouse's codes. It knows no users, no
sessions and no TLS, and runs one statement at a time.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

_INSERT = re.compile(r"\s*INSERT\s+INTO\s+(?P<into>.+?)\s+FORMAT\s+(?P<format>\w+)\s*", re.I | re.S)
_SELECT = re.compile(r"\s*(SELECT|WITH)\b", re.I)
_FORMAT = re.compile(r"\sFORMAT\s+(\w+)\s*;?\s*$", re.I)
_CODE = re.compile(r"Code: (\d+)")
#: Parameters that ClickHouse's HTTP server reads itself: no settings of the statement.
_OF_HTTP = {"query", "database", "query_id", "default_format", "session_id", "wait_end_of_query"}
_OF_HTTP |= {"send_progress_in_http_headers", "http_headers_progress_interval_ms"}
_OF_HTTP |= {"enable_http_compression", "cancel_http_readonly_queries_on_client_close"}


class Engine:
    """ClickHouse's engine with its data in a directory."""

    def __init__(self, directory: str) -> None:
        from chdb.session import Session  # not needed by who imports this module

        self._session = Session(directory)
        self._lock = threading.Lock()

    def run(self, text: str, data: bytes, given: Mapping[str, str]) -> tuple[bytes, str]:
        """Run a statement: the answer and its format."""
        form = _FORMAT.search(text)
        output = form.group(1) if form else given.get("default_format", "TabSeparated")
        pairs = (f"{name} = '{value}'" for name, value in given.items() if name not in _OF_HTTP)
        settings = ", ".join(pairs)
        settings = f" SETTINGS {settings}" if settings else ""
        with self._lock:
            insert = _INSERT.fullmatch(text)
            if insert is not None:
                self._insert(insert["into"], insert["format"], data, settings)
                return b"", output
            if _SELECT.match(text):
                text = (text[: form.start()] if form else text) + settings
            return bytes(self._session.query(text, output).bytes() or b""), output

    def _insert(self, into: str, form: str, data: bytes, settings: str) -> None:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(data)
            self._session.query(f"INSERT INTO {into}{settings} SELECT * FROM file('{file.name}', '{form}')")


def serve(directory: str, port: int) -> None:
    """Print the port (0: any) of loopback and serve there until the process is killed."""
    engine = Engine(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60.0

        def do_GET(self) -> None:
            if urlsplit(self.path).path == "/ping":
                self._send(200, b"Ok.\n", {})
            else:
                self._answer(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                self._answer(b"".join(iter(self._chunk, b"")))
            else:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def _chunk(self) -> bytes:
            chunk = self.rfile.read(int(self.rfile.readline(), 16))
            self.rfile.readline()
            return chunk

        def _answer(self, body: bytes) -> None:
            given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            text = given.get("query", "")
            try:
                if not text:
                    text, body = body.decode(), b""
                data, form = engine.run(text, body, given)
            except Exception as error:  # noqa: BLE001 - becomes the answer
                code = _CODE.search(str(error))
                headers = {"X-ClickHouse-Exception-Code": code.group(1)} if code else {}
                self._send(500, str(error).encode(), headers)
            else:
                self._send(200, data, {"X-ClickHouse-Format": form, "X-ClickHouse-Summary": "{}"})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
