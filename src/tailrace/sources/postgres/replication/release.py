"""Makes the server release WAL early.

A slot's restart position moves only to records of the running transactions, and the server writes one every
15 s: other databases may write hundreds of MB meanwhile. Creating a logical slot writes one at once, in every
version and with no other privilege than REPLICATION; the slot itself is dropped again. The position does not
move while a transaction from before the record is open: then the attempt is abandoned and repeated later.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.sources.postgres.connection import connect
from tailrace.sources.postgres.protocol.literal import string
from tailrace.sources.postgres.replication.slot import PLUGIN

#: WAL that a slot may hold back before a record is requested.
HELD_BACK_BYTES = 16 << 20
_EVERY_S = 1.0
_PATIENCE_MS = 500
#: Pause after a failure: there was no free slot, or a transaction was open.
_REST_S = 15.0


class Release:
    """Requests the records; used by one thread at a time.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._next = 0.0

    def request(self, held_bytes: int) -> None:
        """Request a record if it is time; `held_bytes`: WAL that the stream's slot holds back."""
        if held_bytes < HELD_BACK_BYTES or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        try:
            with closing(connect(self._options, purpose="letting go of WAL")) as connection:
                name = string(f"tailrace_release_{uuid.uuid4().hex[:12]}")
                connection.rows(f"SET statement_timeout = {_PATIENCE_MS}")
                # temporary: it is dropped with the connection
                connection.rows(f"SELECT pg_create_logical_replication_slot({name}, {string(PLUGIN)}, true)")
        except (TailraceError, DatabaseError, InterfaceError, OSError):
            self._next = time.monotonic() + _REST_S  # the server writes its own record by then
