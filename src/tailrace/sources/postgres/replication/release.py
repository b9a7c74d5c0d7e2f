"""Has the server let go of WAL soon.

A slot's restart moves only to records of the transactions that run, and the server writes one every 15 s: a
busy neighbour writes hundreds of MB meanwhile. Making a logical slot writes one at once, in every version and
by no other right than REPLICATION; the slot itself is dropped again. Nothing moves while a transaction of
before the record is open, so whoever has to wait for one gives up and comes back later.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.sources.postgres.connection import connect
from tailrace.sources.postgres.literal import string
from tailrace.sources.postgres.replication.slot import PLUGIN

#: WAL that a slot may hold back before anything is done about it.
HELD_BACK_BYTES = 16 << 20
_EVERY_S = 1.0
_PATIENCE_MS = 500
#: How long nothing is tried after it failed: for want of a free slot, or as a transaction was open.
_REST_S = 15.0


class Release:
    """Asks for the records; used by one thread at a time.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._next = 0.0

    def ask(self, held_bytes: int) -> None:
        """Have a record written if it is time; `held_bytes`: what the stream's slot holds back."""
        if held_bytes < HELD_BACK_BYTES or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        try:
            with closing(connect(self._options, purpose="letting go of WAL")) as connection:
                name = string(f"tailrace_release_{uuid.uuid4().hex[:12]}")
                connection.rows(f"SET statement_timeout = {_PATIENCE_MS}")
                # temporary: it goes with the connection
                connection.rows(f"SELECT pg_create_logical_replication_slot({name}, {string(PLUGIN)}, true)")
        except (TailraceError, DatabaseError, InterfaceError, OSError):
            self._next = time.monotonic() + _REST_S  # the server's own record comes by then
