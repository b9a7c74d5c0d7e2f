"""What an offset says of columns beyond the log: of the catalog when a table was new or had been altered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.enumerator.declared import with_declared
from tailrace.enumerator.offset import RereadProgress, StreamOffset
from tailrace.model.declaration import CatalogText, CatalogTexts, Propagation, TableTexts
from tailrace.model.parked import Parked, Reason
from tailrace.model.schema_change import SchemaEvent, TableTruncated
from tailrace.model.source_type import Declaration
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tests.support.changes import INT, table

COMMENTS = Propagation(comments=True)
SCHEMA = table(("id", INT), key=("id",), name="s.a")
START = StreamOffset("initial", {"pos": 1}, done={"s.a": 1, "s.b": 1})


@dataclass(frozen=True)
class _Table:
    texts: TableTexts


def _text(comment: str) -> TableTexts:
    return {"id": CatalogText(comment=comment)}


def _catalog(**comments: str) -> dict[str, Any]:
    return {f"s.{name}": _Table(_text(comment) if comment else {}) for name, comment in comments.items()}


def _declared(
    start: StreamOffset, end: StreamOffset, catalog: Mapping[str, Any], asked: Propagation = COMMENTS
) -> CatalogTexts | None:
    return with_declared(start, end, asked, catalog, source_type).declared


def test_the_first_batch_takes_all_tables_of_the_stream() -> None:
    catalog = _catalog(a="one", b="", other="not of it")
    assert _declared(START, START, catalog) == {"s.a": _text("one")}
    known = replace(START, declared={"s.a": _text("one")})
    assert _declared(known, known, catalog, Propagation()) is None
    assert _declared(START, START, catalog, Propagation()) is None


def test_later_batches_take_what_is_new_or_altered() -> None:
    start = replace(START, declared={"s.a": _text("one"), "s.b": _text("two")})
    catalog = _catalog(a="ONE", b="TWO", c="three")
    assert _declared(start, start, catalog) == start.declared
    new = start.with_done("s.c", None)
    assert _declared(start, new, catalog) == {**(start.declared or {}), "s.c": _text("three")}
    altered = replace(start, schema=(SchemaEvent("s.b", ()),))
    assert _declared(start, altered, catalog) == {"s.a": _text("one"), "s.b": _text("TWO")}
    assert _declared(start, altered, _catalog(a="ONE", b="")) == {"s.a": _text("one")}
    again = replace(start, again={"s.a": RereadProgress("1")})
    assert _declared(start, again, catalog) == {"s.a": _text("ONE"), "s.b": _text("two")}
    assert _declared(again, again, catalog) == start.declared


def test_a_resumed_table_is_taken_anew_and_a_forgotten_one_left_out() -> None:
    catalog = _catalog(a="ONE", b="TWO")
    parked = {"s.b": Parked(Reason("why"))}
    known = {"s.a": _text("one"), "s.b": _text("two")}
    start = replace(START, done={"s.a": 1}, parked=parked, declared=known)
    assert _declared(start, start, catalog) == known
    resumed = replace(start, done={"s.a": 1, "s.b": 1}, parked={})
    assert _declared(start, resumed, catalog) == {"s.a": _text("one"), "s.b": _text("TWO")}
    assert _declared(start, replace(start, parked={}), catalog) == {"s.a": _text("one")}


def test_a_truncate_has_the_schema_of_the_table_s_other_messages() -> None:
    event = SchemaEvent("s.a", (TableTruncated(),), after=SCHEMA)
    end = with_declared(START, replace(START, schema=(event,)), COMMENTS, _catalog(a="one"), source_type)
    (told,) = end.schema
    assert told.after is not None
    assert told.after.columns[0].declared == Declaration("id", None, "one")
    assert StreamOffset.from_json(end.to_json()) == end
