"""Schema changes whose text is unusual: the table that they rewrite is found, and its target equals it.

The log holds a statement as its client sent it: in the client's character set, with names as they were typed,
and with strings by the SQL mode of the session.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tailrace_dev.servers import start_mariadb, start_mysql
from tests.support.databases import fresh_database
from tests.support.engine import Engine, options_for
from tests.support.rereading import Target

BOTH, MYSQL, MARIADB = ("mysql", "mariadb"), ("mysql",), ("mariadb",)


@dataclass(frozen=True)
class Case:
    """A schema change of a table with the columns id and a.

    Args:
        statements: the statements.
        table: the table's name.
        charset: of the client.
        products: where they are tried.
    """

    statements: list[str]
    table: str = "t"
    charset: str = "utf8mb4"
    products: tuple[str, ...] = field(default=BOTH)


CASES = {
    "client of latin1": Case(["ALTER TABLE `tä` ADD c INT DEFAULT 5"], "tä", "latin1"),
    "client of gbk": Case(["ALTER TABLE `t一` COMMENT '誠', ADD c INT DEFAULT 5"], "t一", "gbk", MYSQL),
    # the second byte of this character is a backslash
    "client of sjis": Case(["ALTER TABLE `表` COMMENT '表', ADD c INT DEFAULT 5"], "表", "sjis", MARIADB),
    "TRUNCATE by a client of latin1": Case(["TRUNCATE `tä`"], "tä", "latin1", MARIADB),
    "backslash in a string": Case(
        [
            "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
            "ALTER TABLE t COMMENT 'x\\', ADD c INT DEFAULT 5, ADD d INT COMMENT 'y'",
        ],
        products=MYSQL,
    ),
    "string in double quotes": Case(
        ['ALTER TABLE t COMMENT "it\\"s", ADD c INT DEFAULT 5, ADD d INT COMMENT "y"'], products=MARIADB
    ),
    "empty comment": Case(["--\nALTER TABLE t --\nADD c INT DEFAULT 5"], products=MYSQL),
    "WAIT": Case(["ALTER TABLE t WAIT 5 ADD c INT DEFAULT 5"], products=MARIADB),
    "table of the default database": Case(["ALTER TABLE .t ADD c INT DEFAULT 5"], products=MARIADB),
    "engine that keeps no rows": Case(
        ["ALTER TABLE t ENGINE = BLACKHOLE", "ALTER TABLE t ENGINE = InnoDB"], products=MYSQL
    ),
}


@pytest.mark.parametrize(
    ("product", "case"),
    [
        pytest.param(product, case, id=f"{name}, {product}")
        for name, case in CASES.items()
        for product in case.products
    ],
)
def test_target_equals_the_table_after_a_statement_of_unusual_text(request, product, case):
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    server.execute(*_filled(f"`{database}`.`{case.table}`"))
    with Engine(options_for(server, rf"{database}\..*")) as engine:
        target = Target(engine, f"{database}.{case.table}")
        target.drain_all()
        with server.connect(charset=case.charset) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE `{database}`")
            for statement in case.statements:
                cursor.execute(statement)
        server.execute(f"UPDATE `{database}`.`{case.table}` SET a = 7 WHERE id = 2")
        target.drain_all()
        target.drain_all()
        target.equals(server)
        assert target.readings


@pytest.mark.parametrize("start", [start_mysql, pytest.param(start_mariadb, marks=pytest.mark.slow)])
def test_target_equals_the_table_where_the_server_ignores_the_case_of_names(start):
    changes = {
        "a": ["ALTER TABLE A ADD C INT DEFAULT 5"],
        "b": ["TRUNCATE TABLE B", "INSERT INTO B VALUES (9, 9)"],
        "c": ["DROP TABLE C", *_filled("C")[:1], "INSERT INTO C VALUES (1, 8)"],
        "d": [*_filled("N"), "UPDATE N SET A = 3", "RENAME TABLE D TO O, N TO D"],
        "e": ["DROP TABLE E"],
        "f": ["RENAME TABLE G TO X, F TO G, X TO F"],
        "g": [],
    }
    with ExitStack() as stack:
        server = stack.enter_context(start(options={"lower_case_table_names": "1"}))
        database = stack.enter_context(fresh_database(server))
        for number, name in enumerate(changes):
            server.execute(
                *_filled(f"`{database}`.`{name}`"), f"UPDATE `{database}`.`{name}` SET a = {number}"
            )
        tables = rf"{database}\.[a-g]"
        engine = stack.enter_context(Engine(options_for(server, tables, onDropTable="apply")))
        targets = {name: Target(engine, f"{database}.{name}") for name in changes}
        _drain(engine, targets)
        for statements in changes.values():
            server.execute(f"USE `{database.upper()}`", *statements)
        _drain(engine, targets)
        for name, target in targets.items():
            if name == "e":
                assert not target.rows
            else:
                target.equals(server)


def _filled(table):
    return (
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
    )


def _drain(engine, targets):
    for _ in range(2):  # what is found out by the first may have to be read again
        engine.plan.hold()
        while (batch := engine.next()) is not None:
            parts = engine.read(*batch)
            for target in targets.values():
                target.apply(*parts, end=batch[1].to_json())
        engine.read_beyond()
