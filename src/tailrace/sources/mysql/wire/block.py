"""A piece of the log as the event decoder reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EventBlock:
    """Whole events of one log file, one after the other, without packet framing.

    Only events that are in the file: no artificial ROTATE or heartbeat. The buffer belongs to the block's
    producer, which reuses it once the block has been read.

    Args:
        buffer: uint8 array with SLACK readable bytes after `end`.
        start: offset in `buffer` of the first event.
        end: offset in `buffer` of the end of the last event.
        file: log file the events are in.
        pos: 64-bit offset in `file` of the first event's start; later ones follow by their sizes.
        checksum: whether each event ends in a CRC32.
    """

    buffer: np.ndarray
    start: int
    end: int
    file: str
    pos: int
    checksum: bool
