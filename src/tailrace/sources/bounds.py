"""Limits on the time and memory that the other side of a connection can cost.

The program that answers at an address may be broken, hostile, or no database at all. So:

* A log-in has one deadline (`connectTimeoutMs`) for everything: the look-up of the name, TLS, every byte. So
  does the answer to a query (`queryTimeoutMs`). A byte a second extends neither.
* Sizes that a server announces are checked before memory is allocated. In a log-in they are small. An answer
  to a query may take `maxAnswerBytes`, counted as the memory of its rows here and not as bytes on the wire,
  since a byte of a result becomes an object.
* Rows in bulk and the log are read by our own code, which holds one row or event at a time: LONGEST_ROW
  limits it. They have no deadline, as a server may search for a long time before it finds a row.
"""

from __future__ import annotations

import time

#: Largest row, event or message in bytes: the maximum of `max_allowed_packet`, and PostgreSQL's limit of an
#: allocation; plus room for the protocol's framing.
LONGEST_ROW = (1 << 30) + (16 << 20)
#: Largest packet or message of a log-in in bytes, and of all of them together.
LOGIN_PACKET, LOGIN_BYTES = 64 << 10, 1 << 20
#: Memory of a packet or row of an answer beyond its bytes, and of each of its values.
ROW_COST, VALUE_COST = 256, 64


class Deadline:
    """A fixed point in time.

    Args:
        seconds: the time until then.
        whole: another deadline, which also applies.

    Attributes:
        seconds: the time until then at the beginning.
        at: the point, in seconds of `time.monotonic`.
    """

    def __init__(self, seconds: float, whole: Deadline | None = None) -> None:
        self.seconds = seconds
        self.at = time.monotonic() + seconds
        if whole is not None and whole.at < self.at:
            self.seconds, self.at = whole.seconds, whole.at

    def left(self) -> float:
        """The seconds left, more than 0.

        Raises:
            TimeoutError: no time is left.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not complete within {self.seconds:g} s")
        return left
