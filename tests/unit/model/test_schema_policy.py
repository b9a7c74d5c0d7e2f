"""What a stream does about each schema change, by its settings."""

from __future__ import annotations

import pytest

from tailrace.model.schema_change import (
    ColumnDropped,
    ColumnRenamed,
    RowsRewritten,
    TableCreated,
    TableDropped,
    TableTruncated,
)
from tailrace.model.schema_policy import Action, SchemaPolicy

DROPPED = ColumnDropped("a")


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
