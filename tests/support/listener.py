"""A socket server on the loopback interface whose connections run a script: the base of attacking servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

#: A script that is left waiting ends with its connection, or after this long.
_LONGEST_S = 60


class Line:
    """One connection, at the server's side.

    Attributes:
        heard: all bytes from the client.
    """

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self.sock = sock
        self.stopping = stopping
        self.heard = bytearray()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes; ConnectionError when the client has disconnected."""
        data = bytearray()
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        self.heard += data
        return bytes(data)

    def listen(self) -> None:
        """Read until the client disconnects."""
        while piece := self.sock.recv(65536):
            self.heard += piece

    def flood(self, piece: bytes) -> None:
        """Send the same bytes repeatedly until the client disconnects."""
        while not self.stopping.is_set():
            self.send(piece)

    def trickle(self, data: bytes, pause_s: float = 0.05) -> None:
        """Send one byte at a time, and repeat the last one, until the client disconnects."""
        at = 0
        while not self.stopping.wait(pause_s):
            self.send(data[at : at + 1])
            at = min(at + 1, len(data) - 1)


class Listener:
    """Runs `script` for each connection, in a thread of its own.

    Attributes:
        lines: of all connections so far.
        port: on 127.0.0.1.
    """

    host = "127.0.0.1"

    def __init__(self, script: Callable[[Line], None], line: type[Line] = Line) -> None:
        self._script, self._line = script, line
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.lines: list[Line] = []
        self._socket = socket.create_server((self.host, 0))
        self.port: int = self._socket.getsockname()[1]

    @property
    def heard(self) -> bytes:
        """All bytes from all connections."""
        return b"".join(bytes(line.heard) for line in self.lines)

    def __enter__(self) -> Self:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join(10)
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)
            line.sock.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            sock.settimeout(_LONGEST_S)
            line = self._line(sock, self._stopping)
            self.lines.append(line)
            thread = threading.Thread(target=self._run, args=(line,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, line: Line) -> None:
        with contextlib.suppress(OSError):  # the client went, as it should
            self._script(line)
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_RDWR)
