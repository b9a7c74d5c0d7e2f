"""Comparison of both sides' rows by key: missing, extra and different rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.kernels.rowhash import hash_rows
from tailrace.model.moments import rows_to_python


class DifferenceKind(StrEnum):
    """The way in which a row differs."""

    MISSING = "missing"  # in the source only
    EXTRA = "extra"  # in the target only, or a duplicate there
    DIFFERENT = "different"  # in both, with other values


@dataclass(frozen=True)
class RowDifference:
    """One row that differs between source and target.

    Args:
        kind: how it differs.
        key: values of the key columns.
        columns: names of the columns that differ; empty unless `kind` is DIFFERENT.
        source: the source's row, None if there is none.
        target: the target's row, None if there is none.
    """

    kind: DifferenceKind
    key: tuple[Any, ...]
    columns: tuple[str, ...]
    source: dict[str, Any] | None
    target: dict[str, Any] | None


@dataclass(frozen=True)
class Differences:
    """Counts of the differing rows, and some of these rows."""

    missing: int
    extra: int
    different: int
    shown: tuple[RowDifference, ...]


def compare(source: pa.Table, target: pa.Table, key: Sequence[str], limit: int) -> Differences:
    """Compare rows by key.

    Args:
        source: rows of the source; each key once.
        target: rows of the target with the same columns of the same types.
        key: names of the key columns.
        limit: most rows to show of each kind.
    """
    left, right = source.combine_chunks(), target.combine_chunks()
    left_keys, right_keys = _hashes(left.select(list(key))), _hashes(right.select(list(key)))
    left_rows, right_rows = _hashes(left), _hashes(right)
    _, left_first = np.unique(left_keys, return_index=True)
    _, right_first = np.unique(right_keys, return_index=True)
    duplicates = np.setdiff1d(np.arange(len(right_keys)), right_first)
    missing = left_first[~np.isin(left_keys[left_first], right_keys)]
    extra = right_first[~np.isin(right_keys[right_first], left_keys)]
    _, at_left, at_right = np.intersect1d(left_keys[left_first], right_keys[right_first], return_indices=True)
    in_left, in_right = left_first[at_left], right_first[at_right]
    unequal = left_rows[in_left] != right_rows[in_right]
    in_left, in_right = in_left[unequal], in_right[unequal]
    extras = np.concatenate([extra, duplicates])
    shown = [
        *(_difference(DifferenceKind.MISSING, key, _row(left, i), None) for i in missing[:limit]),
        *(_difference(DifferenceKind.EXTRA, key, None, _row(right, i)) for i in extras[:limit]),
        *(
            _difference(DifferenceKind.DIFFERENT, key, _row(left, i), _row(right, j))
            for i, j in zip(in_left[:limit], in_right[:limit], strict=True)
        ),
    ]
    return Differences(len(missing), len(extras), len(in_left), tuple(shown))


def _difference(
    kind: DifferenceKind, key: Sequence[str], source: dict[str, Any] | None, target: dict[str, Any] | None
) -> RowDifference:
    row = source if source is not None else target
    assert row is not None
    columns: tuple[str, ...] = ()
    if source is not None and target is not None:
        # like the checksums, repr distinguishes 0.0 and -0.0
        columns = tuple(name for name in source if repr(source[name]) != repr(target[name]))
    return RowDifference(kind, tuple(row[name] for name in key), columns, source, target)


def _row(table: pa.Table, i: int) -> dict[str, Any]:
    found: dict[str, Any] = rows_to_python(table.slice(int(i), 1))[0]
    return found


def _hashes(table: pa.Table) -> np.ndarray:
    columns = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type) for c in table.columns]
    return hash_rows(columns, table.num_rows)
