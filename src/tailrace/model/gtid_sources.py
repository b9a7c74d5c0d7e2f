"""The servers whose transactions a stream gives: Debezium's `gtid.source.includes` and `.excludes`. Pure.

A GTID names the server that first executed its transaction. Changes of other servers are left out, whichever
server the log is read from. So when another server takes over, their transactions need not be in its log, nor
in the same places: of the position there only those count that are given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class GtidSources:
    """Regular expressions over a server's UUID, each for a whole UUID in any case.

    Args:
        include: servers whose transactions are given, and no others; (): all.
        exclude: servers whose transactions are not.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def has(self, uuid: str) -> bool:
        """Whether the transactions of a server are given."""
        return (not self.include or _any(self.include, uuid)) and not _any(self.exclude, uuid)


ALL_SERVERS = GtidSources()


def _any(patterns: tuple[str, ...], uuid: str) -> bool:
    return any(re.fullmatch(pattern, uuid, re.IGNORECASE) for pattern in patterns)
