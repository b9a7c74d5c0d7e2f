"""The way to a server: directly, through an SSH server, or through a proxy.

Every connection of the driver and of the tasks is opened by `connected`, with the same ways. None is shared
between processes: a task that is killed takes its own way with it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.sources.bounds import Deadline
from tailrace.sources.network import open_socket
from tailrace.sources.proxy import open_through
from tailrace.sources.ssh import Tunnel

#: How long `reach` waits.
_REACH_S = 10.0


@contextmanager
def connected(options: SourceOptions, deadline: Deadline, doing: str) -> Iterator[socket.socket]:
    """A socket that is connected to the source's server, for the log-in within.

    If the log-in fails, the socket is closed; and if the reason is that the tunnel did not come about, that
    is the error. Whoever logs in may wrap the socket (TLS) and then owns it.

    Args:
        options: the server and the way to it.
        deadline: of the log-in.
        doing: what is being done, for errors.

    Raises:
        OSError: the server, or the proxy, cannot be reached.
        SourceError: the SSH server or the proxy refuses; transient, where another try may succeed.
        ConfigError: there is no program `ssh`, a file is missing, or the proxy's password cannot be read.
    """
    route = options.route
    tunnel = None
    if route.ssh_tunnel is not None:
        tunnel = Tunnel(route, options.host, options.port, deadline)
        sock = tunnel.socket
    elif route.proxy is not None:
        sock = open_through(route, options.host, options.port, deadline, doing)
    else:
        sock = open_socket(options.host, options.port, deadline)
    try:
        yield sock
    except BaseException as error:
        if tunnel is not None and (not isinstance(error, TailraceError) or error.retryable):
            failure = tunnel.failure(doing)
            sock.close()
            if failure is not None:
                raise failure from error
        sock.close()
        raise


def reach(options: SourceOptions) -> str:
    """Why the source's server cannot be reached from here, "" if it can."""
    # PostgreSQL waits for the client's first words: those that request TLS
    first = struct.pack("!ii", 8, 80877103) if options.dialect == "postgresql" else b""
    try:
        with connected(options, Deadline(_REACH_S), "reaching the source") as sock, sock:
            if options.route.ssh_tunnel is not None:  # it may still be under way
                sock.settimeout(_REACH_S)
                sock.sendall(first)
                if not sock.recv(1):
                    raise ConnectionError("the connection was closed")
    except TailraceError as error:
        return f"{error.message}: {error.detail}"
    except OSError as error:
        return str(error)
    return ""
