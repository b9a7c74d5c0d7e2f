"""What Spark starts instead of an interpreter: asks the fork server (`fork_server`) for a process, and waits.

Run as a script by an interpreter without `site` and without our packages: it must cost little.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import sys

#: Environment variable: the fork server's socket.
VARIABLE = "TAILRACE_FORK_SERVER"
#: Precedes a request: its size in bytes.
HEAD = struct.Struct("!q")


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes.

    Raises:
        EOFError: the connection has ended before.
    """
    found = bytearray()
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return bytes(found)


def main() -> None:
    """Hand over to a fork; become an interpreter where there is no fork server."""
    arguments = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.environ[VARIABLE])
        # `-m` is left out: a fork runs nothing but modules
        request = marshal.dumps((arguments[1:], dict(os.environ), os.getcwd()))  # noqa: PTH109 - without importing pathlib
        socket.send_fds(connection, [HEAD.pack(len(request))], [0, 1, 2])
        connection.sendall(request)
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - as Spark asked
    # what waits for the end of the fork needs no Python: its memory is hardly any
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number, file in enumerate((connection.fileno(), nothing, nothing)):
        os.dup2(file, number)
    os.execvp("cat", ["cat"])  # noqa: S606, S607 - of the system


if __name__ == "__main__":
    main()
