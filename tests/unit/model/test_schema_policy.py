"""What a stream does about each schema change, by its settings."""

from __future__ import annotations

import pytest

from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    TableCreated,
    TableDropped,
    TableTruncated,
)
from tailrace.model.schema_policy import FOLLOWING, Action, Following, SchemaPolicy
from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind

DROPPED = ColumnDropped("a")
ADDED = ColumnAdded(Column("a", ColumnType(Kind.INTEGER, "int", bits=32)))


def test_targets_follow_by_default_and_keep_the_rows_of_dropped_tables():
    policy = SchemaPolicy()
    assert policy.action(DROPPED) is Action.APPLY
    assert policy.action(RowsRewritten("...")) is Action.APPLY
    assert policy.action(TableTruncated()) is Action.APPLY
    assert policy.action(TableDropped()) is Action.IGNORE


def test_any_change_stops_the_stream_with_exception_but_a_new_table():
    policy = SchemaPolicy("exception")
    assert policy.action(DROPPED) is Action.FAIL
    assert policy.action(TableTruncated()) is Action.FAIL
    assert policy.action(TableCreated()) is Action.APPLY


@pytest.mark.parametrize("lists", [{"include": ("truncate.table",)}, {"exclude": ("drop.column",)}])
def test_lists_limit_what_stops_the_stream(lists):
    policy = SchemaPolicy("exception", **lists)
    assert policy.action(DROPPED) is Action.APPLY
    assert policy.action(TableTruncated()) is Action.FAIL


@pytest.mark.parametrize("action", Action)
def test_truncate_and_drop_have_settings_of_their_own(action):
    policy = SchemaPolicy(on_truncate=action.value, on_drop_table=action.value)
    assert policy.action(TableTruncated()) is policy.action(TableDropped()) is action
    assert policy.action(DROPPED) is Action.APPLY


def test_lenient_targets_keep_renamed_and_dropped_columns() -> None:
    policy = SchemaPolicy("lenient")
    for change in (ColumnDropped("a"), ColumnRenamed("a", "b")):
        assert policy.action(change) is Action.IGNORE
        assert SchemaPolicy().action(change) is Action.APPLY


def test_ignored_are_the_columns_but_never_keys_and_rewritten_rows() -> None:
    policy = SchemaPolicy("ignore")
    assert policy.following == Following(adds=False, widens=False)
    for change in (ADDED, DROPPED, ColumnRenamed("a", "b")):
        assert policy.action(change) is Action.IGNORE
    for followed in (KeyAltered(("a",), ("b",)), RowsRewritten("..."), TableTruncated(), TableCreated()):
        assert policy.action(followed) is Action.APPLY


def test_lists_say_which_changes_targets_follow() -> None:
    policy = SchemaPolicy(exclude=("add.column", "truncate.table"))
    assert policy.following == Following(adds=False)
    assert policy.action(ADDED) is policy.action(TableTruncated()) is Action.IGNORE
    assert policy.action(DROPPED) is Action.APPLY
    policy = SchemaPolicy("lenient", include=("add.column", "drop.column"), on_drop_table="apply")
    assert policy.following == Following(widens=False)
    assert policy.action(DROPPED) is policy.action(TableDropped()) is Action.IGNORE
    stops = SchemaPolicy("exception", exclude=("add.column",))
    assert SchemaPolicy().following == stops.following == FOLLOWING
