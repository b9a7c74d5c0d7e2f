"""What the head of a log file says about the log before it."""

from __future__ import annotations

from tailrace.sources.mysql.gtid import GtidSet, domain_source
from tailrace.sources.mysql.wire import mariadb
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels.events import GTID_LIST
from tailrace.sources.mysql.wire.kernels.packets import HEADER


def previous_gtids(block: EventBlock, start: int, end: int) -> GtidSet:
    """The GTIDs in the log before a file, by the event at its head that says so.

    Args:
        block: holds the event.
        start: offset in the file of its start.
        end: offset of its end.
    """
    base = block.start - block.pos
    trailer = 4 if block.checksum else 0
    body = block.buffer[base + start + HEADER : base + end - trailer].tobytes()
    if block.buffer[base + start + 4] == GTID_LIST:
        last = mariadb.gtid_list(body)
        return GtidSet((domain_source(domain, server), 1, number + 1) for domain, server, number in last)
    return GtidSet.decode(body)
