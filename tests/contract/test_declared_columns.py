"""Declared types and comments of columns: batches have those that their end offset says."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.enumerator.enumerator import Enumerator
from tailrace.enumerator.offset import StreamOffset
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.schemas import key_schema, row_schema
from tailrace.model.source_type import Declaration, SourceType
from tailrace.sources import registry
from tailrace.spark.partition import read_split
from tailrace_dev.servers import MariaDbServer, MySqlServer
from tests.support.engine import Engine, options_for

ASKED = {
    "shape": "cells",
    "include.schema.comments": "true",
    "column.propagate.source.type": ".*[.].*[.].*",
}
Said = dict[str, Declaration | None]
INT, VARCHAR = SourceType("INT"), SourceType("VARCHAR", 10)


class _Tables:
    """A layout that keeps the tables of the changes that are to be laid out."""

    def __init__(self) -> None:
        self.found: list[Said] = []

    def rows(self, changes: Any) -> Any:
        for batch in changes:
            said = {c.name: c.declared for c in batch.table.columns}
            if said not in self.found:
                self.found.append(said)
        return iter(())


def _said(options: SourceOptions, plan: Enumerator, start: StreamOffset, end: StreamOffset) -> list[Said]:
    """What the changes of a batch say of their columns, each once."""
    tables = _Tables()
    for split in plan.splits(start, end):
        for _ in read_split(split, options, tables, follows=True):  # type: ignore[arg-type]
            pass
    return tables.found


def test_batches_say_what_the_catalog_had(mysql: MySqlServer, database: str) -> None:
    table = f"`{database}`.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT(7) UNSIGNED ZEROFILL PRIMARY KEY COMMENT 'number', "
        "v VARCHAR(10) COMMENT 'it''s', n TINYINT(1), d DECIMAL(6,3))",
        f"INSERT INTO {table} VALUES (1, 'a', 1, 1)",
    )
    options = options_for(mysql, rf"{database}\.t", onRewrite="ignore", **ASKED)
    batches: list[tuple[StreamOffset, StreamOffset]] = []
    first: Said = {
        "id": Declaration("id", SourceType("INT UNSIGNED ZEROFILL", 7), "number"),
        "v": Declaration("v", VARCHAR, "it's"),
        "n": Declaration("n", SourceType("TINYINT", 1)),
        "d": Declaration("d", SourceType("DECIMAL", 6, 3)),
    }
    second = {**first, "v": Declaration("v", VARCHAR, "other")}
    third = {**second, "w": Declaration("w", INT, "new")}
    expected = [first, first, second, second, third]
    told: list[Said] = []
    steps = [
        [],
        [f"INSERT INTO {table} VALUES (2, 'b', 1, 1)"],
        [
            f"INSERT INTO {table} VALUES (3, 'c', 1, 1)",
            f"ALTER TABLE {table} MODIFY v VARCHAR(10) COMMENT 'other'",
            f"INSERT INTO {table} VALUES (4, 'd', 1, 1)",
        ],
        [f"UPDATE {table} SET v = 'x'"],
        [
            f"ALTER TABLE {table} ADD w INT COMMENT 'new'",
            f"INSERT INTO {table} VALUES (5, 'e', 1, 1, 5)",
        ],
    ]
    with Engine(options) as engine:
        for statements, said in zip(steps, expected, strict=True):
            if statements:
                mysql.execute(*statements)
            found: list[Said] = []
            while found[-1:] != [said]:  # a batch may end before the schema change
                if (batch := engine.next()) is not None:
                    batches.append(batch)
                    found += _said(options, engine.plan, *batch)
            told += found
    mysql.execute(f"ALTER TABLE {table} MODIFY v VARCHAR(10) COMMENT 'last', MODIFY n TINYINT COMMENT 'last'")
    # another process repeats them, whose catalog has other comments
    with closing(Enumerator(options, registry.source(options), parallelism=2)) as plan:
        again = [said for batch in batches for said in _said(options, plan, *batch)]
    again[0].pop("w")  # rows are selected with the columns of today
    assert again == told
    assert [said for said, _ in itertools.groupby(told)] == [first, second, third]
    assert "last" not in json.dumps([end.to_json() for _, end in batches])


def test_schemas_have_doc_and_parameters_in_the_order_of_debezium(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.t "
        "(id INT PRIMARY KEY COMMENT 'number', d DECIMAL(6,3) COMMENT 'c')",
        f"INSERT INTO {mariadb_database}.t VALUES (1, 1)",
    )
    options = options_for(mariadb, rf"{mariadb_database}\.t", **ASKED, url=mariadb.url)
    with Engine(options) as engine:
        batch = engine.next()
        assert batch is not None
        start, end = batch
        (split,) = engine.plan.splits(start, end)
        session = registry.session(options)
        table = options.propagation.table(
            split.table, split.declared[str(split.table.id)], session.source_type
        )
        session.close()
    names = "__debezium.source.column"
    assert key_schema(table, "x", Modes())["fields"] == [
        {"type": "int32", "optional": False, "doc": "number", "field": "id"}
    ]
    number = row_schema(table, "x", Modes())["fields"][1]
    assert list(number.items()) == [
        ("type", "bytes"),
        ("optional", True),
        ("name", "org.apache.kafka.connect.data.Decimal"),
        ("version", 1),
        ("doc", "c"),
        (
            "parameters",
            {
                "scale": "3",
                "connect.decimal.precision": "6",
                f"{names}.type": "DECIMAL",
                f"{names}.length": "6",
                f"{names}.scale": "3",
                f"{names}.comment": "c",
                f"{names}.name": "d",
            },
        ),
        ("field", "d"),
    ]
    assert row_schema(table, "x", Modes())["fields"][0]["parameters"][f"{names}.length"] == "11"


@pytest.mark.parametrize("start", [{}, ASKED], ids=["off", "on"])
def test_the_option_may_be_set_and_left_out_at_a_restart(
    mysql: MySqlServer, database: str, start: dict[str, str]
) -> None:
    table = f"`{database}`.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY COMMENT 'number')", f"INSERT INTO {table} VALUES (1)"
    )
    plain = {"shape": "cells"}
    offset = StreamOffset()
    for number, given in enumerate(({**plain, **start}, {**plain, **({} if start else ASKED)})):
        options = options_for(mysql, rf"{database}\.t", **given)
        with Engine(options) as engine:
            engine.offset = offset
            said: list[Said] = []
            while not said:
                if (batch := engine.next()) is not None:
                    said = _said(options, engine.plan, *batch)
                    offset = batch[1]
            declared = Declaration("id", INT, "number") if options.propagation else None
            assert said == [{"id": declared}]
            assert (offset.declared is None) == (declared is None)
        mysql.execute(f"INSERT INTO {table} VALUES ({number + 2})")
