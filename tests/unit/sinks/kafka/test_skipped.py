"""Which changes the Kafka sink leaves out, and which have a place in their transaction."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.model.change import OP_TRUNCATE, ChangeBatch
from tailrace.sinks.kafka.skipped import SkippedOperations
from tests.support.changes import changes
from tests.unit.sinks.kafka.test_writer import SCHEMA, key_update, row


@pytest.mark.parametrize(
    ("letters", "connector", "kept"),
    [
        ("", "mysql", [True, True]),
        ("t", "mysql", [True, True]),
        ("d", "mysql", [False, True]),
        ("c", "mariadb", [True, False]),
        ("u", "mysql", [False, False]),
        ("u", "mariadb", [False, False]),
        ("u", "postgresql", [True, True]),
        ("du", "postgresql", [False, True]),
    ],
)
def test_halves_of_key_updates_are_left_out_as_by_the_connectors(
    letters: str, connector: str, kept: list[bool]
) -> None:
    skipped = SkippedOperations(frozenset(letters), connector)
    assert skipped.kept(key_update(1, 2, first=10)).tolist() == kept


def test_reads_are_never_left_out() -> None:
    read = changes(SCHEMA, [("r", None, row(1))])
    assert SkippedOperations(frozenset("cudt")).kept(read).tolist() == [True]


@pytest.mark.parametrize(
    ("connector", "counted"), [("mysql", False), ("mariadb", False), ("postgresql", True)]
)
def test_truncate_has_a_transaction_where_the_log_has_one(connector: str, counted: bool) -> None:
    origin = changes(SCHEMA, [("r", None, row(1))]).origin
    gone = ChangeBatch(SCHEMA, pa.array([OP_TRUNCATE], pa.int8()), None, None, origin)
    skipped = SkippedOperations(frozenset(), connector)
    assert skipped.kept(gone).tolist() == [True]
    assert skipped.counted(gone).tolist() == [counted]
