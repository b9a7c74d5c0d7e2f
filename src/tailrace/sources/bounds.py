"""What the other side of a connection may take of us: time and memory.

Whoever answers at an address may be broken, hostile, or no database at all. So:

* A log-in has one deadline (`connectTimeoutMs`) for all of it: the look-up of the name, TLS, every byte. So
  has the answer to a question (`queryTimeoutMs`). One byte a second moves neither.
* Sizes that a server announces are checked before memory is taken. In a log-in they are small. An answer to a
  question may take `maxAnswerBytes`, counted as the memory that its rows take here and not as bytes on the
  wire, since a byte of a result becomes an object.
* Rows in bulk and the log are read by code of ours that holds one row or event at a time: LONGEST_ROW bounds
  it. They have no deadline, as a server may search for long before it finds a row.
"""

from __future__ import annotations

import time

#: Most bytes of a row, an event or a message: the most that `max_allowed_packet` can be, and PostgreSQL's
#: limit of an allocation; with room for what the protocol puts around it.
LONGEST_ROW = (1 << 30) + (16 << 20)
#: Most bytes of one packet or message of a log-in, and of all of them.
LOGIN_PACKET, LOGIN_BYTES = 64 << 10, 1 << 20
#: What a packet or row of an answer takes here beyond its bytes, and each of its values.
ROW_COST, VALUE_COST = 256, 64


class Deadline:
    """A point in time that does not move.

    Args:
        seconds: how far ahead it is.
        whole: another one that holds as well.

    Attributes:
        seconds: how far ahead it was.
        at: the point, in `time.monotonic`'s seconds.
    """

    def __init__(self, seconds: float, whole: Deadline | None = None) -> None:
        self.seconds = seconds
        self.at = time.monotonic() + seconds
        if whole is not None and whole.at < self.at:
            self.seconds, self.at = whole.seconds, whole.at

    def left(self) -> float:
        """Seconds that are left, more than 0.

        Raises:
            TimeoutError: none are.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not complete within {self.seconds:g} s")
        return left
