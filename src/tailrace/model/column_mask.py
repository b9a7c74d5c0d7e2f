"""What becomes of the values of columns: Debezium's `column.mask.*` and `column.truncate.*`. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tailrace.model.table import TableId

_NAME = re.compile(
    r"column\.(?:truncate\.to\.(?P<length>\d+)\.chars|mask\.with\.(?P<stars>\d+)\.chars"
    r"|mask\.hash\.(?P<v2>v2\.)?(?P<algorithm>[a-z0-9/-]+))",
    re.IGNORECASE,
)
#: Algorithms by Java's names, and Python's names of them.
ALGORITHMS = {
    "md5": "md5",
    "sha": "sha1",
    "sha-1": "sha1",
    "sha-224": "sha224",
    "sha-256": "sha256",
    "sha-384": "sha384",
    "sha-512": "sha512",
    "sha-512/224": "sha512_224",
    "sha-512/256": "sha512_256",
    "sha3-224": "sha3_224",
    "sha3-256": "sha3_256",
    "sha3-384": "sha3_384",
    "sha3-512": "sha3_512",
}


class MaskKind(IntEnum):
    """How values are changed; of several masks of a column the first kind counts, as in Debezium."""

    TRUNCATE = 0
    STARS = 1
    #: A hash of Java's serial form of the text.
    HASH = 2
    #: A hash of the text.
    HASH_V2 = 3


@dataclass(frozen=True)
class ColumnMask:
    """One mask.

    Args:
        name: the option that it is.
        kind: how values are changed.
        length: of TRUNCATE and STARS: how many characters are left, or written.
        algorithm: of hashes: `hashlib`'s name.
        patterns: regular expressions over `database.table.column`, each for a whole name in any case.
    """

    name: str
    kind: MaskKind
    length: int
    algorithm: str
    patterns: tuple[str, ...]

    def has(self, table: TableId, column: str) -> bool:
        """Whether a column has the mask."""
        name = f"{table}.{column}"
        return any(re.fullmatch(p, name, re.DOTALL | re.IGNORECASE) for p in self.patterns)

    @property
    def is_hash(self) -> bool:
        """Whether it needs a salt."""
        return self.kind in (MaskKind.HASH, MaskKind.HASH_V2)


def is_mask(name: str) -> bool:
    """Whether an option's name is that of a mask."""
    return _NAME.fullmatch(name) is not None


def column_mask(name: str, patterns: Sequence[str]) -> ColumnMask:
    """The mask of an option.

    Raises:
        ValueError: there is no such algorithm.
    """
    found = _NAME.fullmatch(name)
    assert found is not None
    if found["length"] is not None:
        return ColumnMask(name, MaskKind.TRUNCATE, int(found["length"]), "", tuple(patterns))
    if found["stars"] is not None:
        return ColumnMask(name, MaskKind.STARS, int(found["stars"]), "", tuple(patterns))
    algorithm = ALGORITHMS.get(found["algorithm"].lower())
    if algorithm is None or algorithm not in hashlib.algorithms_available:
        raise ValueError(f"no such algorithm here; there are {', '.join(ALGORITHMS)}")
    kind = MaskKind.HASH_V2 if found["v2"] else MaskKind.HASH
    return ColumnMask(name, kind, 0, algorithm, tuple(patterns))
