"""The page of schema changes: those of a checkpoint, as text and nothing else."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tailrace.control import subscriptions
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.pages.schema_changes import columns
from tailrace.control.tokens import Scope
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    SchemaChange,
    SchemaEvent,
    TableDropped,
    TableRenamed,
)
from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind
from tests.support.pages import FILE, HOSTILE, SHOWN, browsing

PAGE = "/pipelines/shop/schema-changes"
TEXT = ColumnType(Kind.STRING, "varchar", length=20)
AMOUNT = ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2, unsigned=True)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", FILE.replace("NAME", "shop"))
    yield database
    database.close()


def planned(tmp_path: Path, number: int, *events: SchemaEvent, committed: bool = True) -> None:
    """The checkpoint has a batch that begins with these changes."""
    root = tmp_path / "lake/shop/_checkpoint"
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True, exist_ok=True)
    end = StreamOffset("initial", {"pos": number}, schema=events).to_json()
    at = json.dumps({"batchTimestampMs": 1_700_000_000_000 + number * 1000})
    (root / "offsets" / str(number)).write_text(f"v1\n{at}\n{json.dumps(end)}\n")
    if committed:
        (root / "commits" / str(number)).write_text("v1\n{}")


def shown(page: str) -> list[str]:
    rows = re.findall(r"<tr>(.*?)</tr>", page.split("<tbody>")[1], re.S)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in rows]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (ColumnAdded(Column("note", TEXT), "'secret'"), "note varchar(20)"),
        (ColumnAdded(Column("amount", AMOUNT, nullable=False)), "amount decimal(10,2) unsigned not null"),
        (ColumnDropped("note"), "note"),
        (ColumnRenamed("note", "remark"), "note → remark"),
        (ColumnAltered(Column("n", TEXT), Column("n", AMOUNT)), "n varchar(20) → n decimal(10,2) unsigned"),
        (KeyAltered((), ("a", "b")), "no key → (a, b)"),
        (TableRenamed("shop.b"), "→ shop.b"),
        (RowsRewritten("a cast"), "a cast"),
        (TableDropped(), ""),
    ],
)
def test_columns_of_a_change(change: SchemaChange, text: str) -> None:
    assert columns(change) == text


def test_newest_changes_come_first(database: ControlDatabase, tmp_path: Path) -> None:
    planned(tmp_path, 0)
    planned(
        tmp_path, 1, SchemaEvent("shop.a", (ColumnDropped("x"),), "ALTER secret", ts_ms=1_600_000_000_000)
    )
    more = SchemaEvent("shop.b", (ColumnAdded(Column("n", TEXT), "'hunter2'"), ColumnRenamed("a", "b")))
    planned(tmp_path, 2, SchemaEvent("shop.a", (TableDropped(),)), more, committed=False)
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
    assert shown(page) == [
        "2023-11-14 22:13:22 UTC shop.b add.column n varchar(20) 2 not written yet",
        "rename.column a → b",
        "2023-11-14 22:13:22 UTC shop.a drop.table 2 not written yet",
        "2020-09-13 12:26:40 UTC shop.a drop.column x 1",
    ]
    assert "secret" not in page
    assert "hunter2" not in page


def test_changes_that_somebody_set_the_offset_over_are_not_lost(
    database: ControlDatabase, tmp_path: Path
) -> None:
    planned(tmp_path, 4, SchemaEvent("shop.a", (ColumnDropped("x"),)))
    root = tmp_path / "lake/shop/_checkpoint"
    (root / "offsets.before").mkdir()
    (root / "offsets" / "4").rename(root / "offsets.before" / "4.0")
    planned(tmp_path, 4)
    with browsing(database, Scope.READ, tmp_path) as browser:
        assert shown(browser.get(PAGE)) == ["2023-11-14 22:13:24 UTC shop.a drop.column x 4"]


def test_hostile_names_are_shown_as_text(database: ControlDatabase, tmp_path: Path) -> None:
    hostile = Column(HOSTILE, ColumnType(Kind.STRING, HOSTILE))
    changes = (ColumnAdded(hostile), ColumnRenamed(HOSTILE, HOSTILE), RowsRewritten(HOSTILE))
    planned(tmp_path, 0, SchemaEvent(HOSTILE, changes))
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
    assert page.count(SHOWN) == 6
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "49" not in shown(page)[0]


def test_changes_come_by_the_page(database: ControlDatabase, tmp_path: Path) -> None:
    events = [SchemaEvent(f"shop.t{i:03}", (ColumnDropped("x"),)) for i in range(120)]
    for number in range(2):
        planned(tmp_path, number, *events[number * 60 : number * 60 + 60])
    seen: list[str] = []
    with browsing(database, Scope.READ, tmp_path) as browser:
        path: str | None = PAGE
        while path:
            page = browser.get(path)
            seen += re.findall(r"shop\.t\d+", page)
            later = re.search(r'rel="next" href="([^"]+)"', page)
            path = html.unescape(later[1]) if later else None
    assert seen == [event.table for event in reversed(events)]


def test_checkpoint_of_another_version_is_an_error_of_the_part_alone(
    database: ControlDatabase, tmp_path: Path
) -> None:
    planned(tmp_path, 0)
    unknown = {"v": 1, "schema": [{"table": "t", "changes": [{"kind": "x"}]}]}
    with browsing(database, Scope.READ, tmp_path) as browser:
        for text, code in ((f"v1\n{{}}\n{json.dumps(unknown)}", "TR-8465"), ("x", "TR-6003")):
            (tmp_path / "lake/shop/_checkpoint/offsets/0").write_text(text)
            page = browser.get(PAGE)
            assert code in page
            assert 'id="schema-changes"' in page


def test_pipeline_without_a_batch_has_none(database: ControlDatabase, tmp_path: Path) -> None:
    with browsing(database, Scope.READ, tmp_path) as browser:
        assert "No batch that" in browser.get(PAGE)
        assert browser.client.get("/pipelines/nothing/schema-changes").status_code == 404


def test_page_of_the_pipeline_loads_both_parts(database: ControlDatabase, tmp_path: Path) -> None:
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get("/pipelines/shop")
        parts: Sequence[tuple[str, str]] = re.findall(r'hx-get="([^"]+)" hx-select="#([\w-]+)"', page)
        assert [part for _, part in parts] == ["comparisons", "schema-changes"]
        for path, part in parts:
            assert f'id="{part}"' in browser.get(path)
