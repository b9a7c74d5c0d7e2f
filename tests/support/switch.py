"""One address in front of several servers, like a virtual IP or a proxy in a failover."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Switch:
    """Forwards connections to the server it points to; pointing elsewhere breaks existing ones."""

    host = "127.0.0.1"

    def __init__(self, server) -> None:
        self._server = server
        self.user, self.password = server.user, server.password
        self._listener = socket.create_server((self.host, 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._flows.set()
        self.break_off()

    def point(self, server) -> None:
        """Forward new connections to `server`, and end the others."""
        self._server = server
        self.break_off()

    def stall(self) -> None:
        """Let nothing pass; connections stay."""
        self._flows.clear()

    def resume(self) -> None:
        """Let everything pass again, what was sent meanwhile too."""
        self._flows.set()

    def break_off(self) -> None:
        """End every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            server = self._server
            try:
                far = socket.create_connection((server.host, server.port))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as selector, near, far:
            for sock in other:
                selector.register(sock, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    try:
                        data = key.fileobj.recv(1 << 16)
                        self._flows.wait()
                        other[key.fileobj].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
