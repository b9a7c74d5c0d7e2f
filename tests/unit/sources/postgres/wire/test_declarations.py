"""Declared types in Debezium's words; a slow test compares those of all types with Debezium's."""

from __future__ import annotations

import pytest

from tailrace.model.source_type import SourceType
from tailrace.sources.postgres.wire.declarations import source_type
from tailrace.sources.postgres.wire.types import PostgresType, PostgresTypes

MOOD = PostgresType(70_000, "public", "mood", "e", labels=("sad",))
TYPES = PostgresTypes([MOOD])


@pytest.mark.parametrize(
    ("oid", "modifier", "expected"),
    [
        (23, -1, SourceType("INT4", 10, 0)),
        (1043, 104, SourceType("VARCHAR", 100, 0)),
        (1043, -1, SourceType("VARCHAR", 2**31 - 1, 0)),
        (1015, 14, SourceType("_VARCHAR", 10, 0)),
        (1700, (10 << 16 | 2) + 4, SourceType("NUMERIC", 10, 2)),
        (1700, (50 << 16 | 10) + 4, SourceType("NUMERIC", 50, 10)),
        (1700, -1, SourceType("NUMERIC", 131_089, 0)),
        (1083, 0, SourceType("TIME", 8, 0)),
        (1083, 3, SourceType("TIME", 12, 3)),
        (1115, -1, SourceType("_TIMESTAMP", 29, 6)),
        (1184, 1, SourceType("TIMESTAMPTZ", 31, 1)),
        (1560, 1, SourceType("BIT", 1, 0)),
        (1560, 8, SourceType("BIT", 8, 0)),
        (1186, -1, SourceType("INTERVAL", 49, 6)),
        (701, -1, SourceType("FLOAT8", 17, 17)),
        (70_000, -1, SourceType("MOOD", 2**31 - 1, 0)),
    ],
)
def test_types_have_debezium_s_names_lengths_and_scales(
    oid: int, modifier: int, expected: SourceType
) -> None:
    assert source_type(TYPES.column_type(oid, modifier)) == expected
