"""Random changes of one table, of its rows and of its shape, by the server's own catalog as it is then."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_PARTITIONED = """ALTER TABLE t PARTITION BY RANGE (id)
    (PARTITION p0 VALUES LESS THAN (20), PARTITION p1 VALUES LESS THAN MAXVALUE)"""
_COLUMNS = "id int PRIMARY KEY, a int, b text, c numeric(10,2), d int"
#: Rows have ids from 1 to this; some are moved by it.
MOST_ROWS = 60
#: Writers beside a stream.
WRITERS = 8


@dataclass(frozen=True)
class Field:
    """A column besides `id`, as the catalog has it now.

    Args:
        name: its name.
        kind: "number", "text" or "decimal".
        is_generated: whether it cannot be written.
    """

    name: str
    kind: str
    is_generated: bool


class RandomTable(ABC):
    """The table `t`, with the key `id`, and the table `u`, with which it may be swapped.

    Args:
        execute: runs statements, each by itself; raises an error of the driver.
        seed: of all choices.
    """

    #: The key, which may be text, as a number.
    KEY_AS_NUMBER = "id"

    def __init__(self, execute: Callable[..., Any], seed: int) -> None:
        self.execute = execute
        self.random = random.Random(seed)
        #: What was executed, for the report of a failure.
        self.log: list[str] = []
        self._names = 0

    def create(self) -> None:
        """The tables with rows in a third of their ids."""
        self.run(*self._new("t"), *self._new("u"))

    def change_rows(self, statements: int) -> None:
        """Insert, update and delete rows."""
        for _ in range(statements):
            fields = [f for f in self.fields() if not f.is_generated]
            first = self.random.randint(1, MOST_ROWS)
            where = f"{self.KEY_AS_NUMBER} BETWEEN {first} AND {first + self.random.randint(0, 5)}"
            match self.random.choice("iiuudk"):
                case "i":
                    names = ", ".join(["id", *(self.quoted(f.name) for f in fields)])
                    values = ", ".join([str(first), *(self._value(f) for f in fields)])
                    self.attempt(f"INSERT INTO t ({names}) VALUES ({values})")
                case "u" if fields:
                    field = self.random.choice(fields)
                    self.attempt(
                        f"UPDATE t SET {self.quoted(field.name)} = {self._value(field)} WHERE {where}"
                    )
                case "k":
                    aside = self.random.choice([MOST_ROWS, -MOST_ROWS])
                    self.attempt(f"UPDATE t SET id = {self.KEY_AS_NUMBER} + {aside} WHERE {where}")
                case _:
                    self.attempt(f"DELETE FROM t WHERE {where}")

    def change_shape(self) -> None:
        """One random schema change; the server may refuse it."""
        statements = self.random.choice(list(self.shapes()))
        for statement in statements:
            if not self.attempt(statement):
                return

    def logs_old_rows(self, name: str) -> bool:
        """Whether the log has the whole row before an update or a delete of a table."""
        return True

    @abstractmethod
    def writes(self, number: int, turn: int) -> Sequence[str]:
        """What one of WRITERS writers executes at a turn, whatever tables look like; it may be refused."""

    @abstractmethod
    def fields(self) -> list[Field]:
        """The columns besides `id`."""

    @abstractmethod
    def shapes(self) -> Iterator[Sequence[str]]:
        """Schema changes that are possible now, each as statements."""

    @abstractmethod
    def quoted(self, name: str) -> str:
        """A quoted name."""

    @abstractmethod
    def _new(self, name: str) -> Sequence[str]:
        """Statements that make a table of that name, with rows."""

    def run(self, *statements: str) -> None:
        """Run statements that the server must accept."""
        self.log += statements
        self.execute(*statements)

    def attempt(self, statement: str) -> bool:
        """Run a statement that the server may refuse; whether it did not."""
        try:
            self.execute(statement)
        except Exception:  # noqa: BLE001 - of two drivers: a duplicate key, a value that does not fit
            with suppress(Exception):
                self.log.append(f"-- refused: {statement}")
            return False
        self.log.append(statement)
        return True

    def new_name(self) -> str:
        """A name that no column has had."""
        self._names += 1
        return f"n{self._names}"

    def _value(self, field: Field) -> str:
        number = self.random.randint(0, 9)
        match field.kind:
            case "number":
                return str(number)
            case "decimal":
                return f"{number}.25"
            case _:
                return f"'{self.random.choice(['', '', 'x', 'ä'])}{number}'"

    def rows(self, columns: int) -> str:
        """VALUES of a third of the ids with that many further numbers."""
        ids = sorted(self.random.sample(range(1, MOST_ROWS), MOST_ROWS // 3))
        return ", ".join(
            f"({', '.join(str(v) for v in (i, *[self.random.randint(0, 9)] * columns))})" for i in ids
        )


class MySqlTable(RandomTable):
    """A table of MySQL or MariaDB."""

    def writes(self, number: int, turn: int) -> Sequence[str]:
        """What a writer executes at a turn."""
        id_ = turn * WRITERS % (4 * MOST_ROWS) + number
        return (
            f"DELETE FROM t WHERE id % {WRITERS} = {number} LIMIT 1",
            f"INSERT INTO t (id) VALUES ({id_})",
            f"UPDATE t SET id = id + {4 * MOST_ROWS} WHERE id = {id_ - WRITERS}",
            f"INSERT INTO u (id) VALUES ({id_})",
            f"DELETE FROM u WHERE id % {WRITERS} = {number} LIMIT 1",
        )

    def fields(self) -> list[Field]:
        """The columns besides `id`."""
        found = self.execute(
            "SELECT column_name, data_type, extra FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND table_name = 't' AND column_name <> 'id' "
            "ORDER BY ordinal_position"
        )
        kinds = {"int": "number", "bigint": "number", "decimal": "decimal"}
        return [Field(name, kinds.get(type_, "text"), "GENERATED" in extra) for name, type_, extra in found]

    def quoted(self, name: str) -> str:
        """A quoted name."""
        return f"`{name}`"

    def _new(self, name: str) -> Sequence[str]:
        return (
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20), c DECIMAL(10,2), d INT)",
            f"INSERT INTO {name} (id, a, b, c) VALUES {self.rows(3)}",
        )

    def shapes(self) -> Iterator[Sequence[str]]:
        """Schema changes that are possible now."""
        fields, one = self.fields(), self.random.choice
        new = self.new_name()
        place = one(["", " FIRST", " AFTER id"])
        type_, default = one([("INT", "5"), ("VARCHAR(20)", "'y'"), ("DECIMAL(10,2)", "1.25")])
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_}{place}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} DEFAULT {default}{place}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} NOT NULL"]
        yield [f"ALTER TABLE t ADD COLUMN {new} INT AS (id + 1) STORED"]
        yield ["TRUNCATE TABLE t"]
        yield ["DROP TABLE t", *self._new("t")]
        yield ["DROP TABLE IF EXISTS o", *self._new("n"), "RENAME TABLE t TO o, n TO t"]
        for type_ in ("INT", "BIGINT", "VARCHAR(20)", "VARCHAR(20) COLLATE utf8mb4_bin"):
            yield [f"ALTER TABLE t MODIFY id {type_}"]
        yield ["ALTER TABLE t CONVERT TO CHARACTER SET latin1"]
        yield [_PARTITIONED]
        yield ["ALTER TABLE t TRUNCATE PARTITION p0"]
        yield ["ALTER TABLE t DROP PARTITION p0"]
        yield [
            "DROP TABLE IF EXISTS x",
            "CREATE TABLE x LIKE t",
            "ALTER TABLE x REMOVE PARTITIONING",
            f"INSERT INTO x (id) VALUES ({self.random.randint(1, 19)})",
            "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x",
        ]
        written = ", ".join(["id", *(self.quoted(f.name) for f in fields if not f.is_generated)])
        yield [
            "DROP TABLE IF EXISTS _t_gho, _t_del",
            "CREATE TABLE _t_gho LIKE t",
            f"ALTER TABLE _t_gho ADD COLUMN {new} {type_} DEFAULT {default}{place}",
            f"INSERT INTO _t_gho ({written}) SELECT {written} FROM t",
            "RENAME TABLE t TO _t_del, _t_gho TO t",
        ]
        yield ["ALTER TABLE t REMOVE PARTITIONING"]
        yield from self._of_whole_tables(new)
        yield [f"ALTER TABLE t ADD COLUMN {new} VARCHAR(20) DEFAULT (CONCAT('e', 1 + 1)){place}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} DEFAULT {default}{place}, ALGORITHM=INSTANT"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} INVISIBLE DEFAULT {default}"]
        yield [f"ALTER TABLE t WAIT 5 ADD COLUMN {new} {type_} DEFAULT {default}"]
        yield [f"ALTER TABLE t ADD CONSTRAINT c{new} CHECK (id > 0), ADD INDEX i{new} (id), COMMENT 'a, b'"]
        yield ["ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"]
        yield ["ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC", "OPTIMIZE TABLE t"]
        yield [f"ALTER TABLE t ADD COLUMN {new} INT NOT NULL DEFAULT 0", _rekeyed(f"id, {new}")]
        yield [_rekeyed("id")]
        if not fields:
            return
        name = self.quoted(one(fields).name)
        yield [f"ALTER TABLE t DROP COLUMN {name}"]
        yield [f"ALTER TABLE t DROP COLUMN {name}, ALGORITHM=INSTANT"]
        yield [f"ALTER TABLE t DROP COLUMN {name}", f"ALTER TABLE t ADD COLUMN {name} INT{place}"]
        yield [f"ALTER TABLE t ALTER COLUMN {name} SET INVISIBLE"]
        yield [f"ALTER TABLE t ALTER COLUMN {name} SET DEFAULT NULL, MODIFY {name} VARCHAR(30) FIRST"]
        yield [f"ALTER TABLE t RENAME COLUMN {name} TO {new}"]
        yield [f"ALTER TABLE t RENAME COLUMN {name} TO {new}, ADD COLUMN {name} {type_} DEFAULT {default}"]
        yield [f"ALTER TABLE t CHANGE {name} {new} BIGINT"]
        for type_ in (
            "INT",
            "BIGINT",
            "DECIMAL(12,3)",
            "DECIMAL(10,1)",
            "VARCHAR(40)",
            "VARCHAR(20) NOT NULL",
            "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "VARCHAR(20) CHARACTER SET latin1",
            "VARBINARY(80)",
            _labels(range(10)),
            _labels(reversed(range(10))),
            _labels(range(10), "SET"),
            _labels(reversed(range(10)), "SET"),
            "INT AS (id + 2) STORED",
            "INT AS (id + 3) VIRTUAL",
        ):
            yield [f"ALTER TABLE t MODIFY {name} {type_}"]
        if len(fields) > 1:
            first, second = (self.quoted(f.name) for f in self.random.sample(fields, 2))
            yield [f"ALTER TABLE t RENAME COLUMN {first} TO {second}, RENAME COLUMN {second} TO {first}"]
            yield [f"ALTER TABLE t DROP COLUMN {first}, RENAME COLUMN {second} TO {first}"]

    def _of_whole_tables(self, new: str) -> Iterator[Sequence[str]]:
        """Another table under the name, for good or for a time."""
        yield ["DROP TABLE IF EXISTS u", *self._new("u")]
        yield ["RENAME TABLE t TO aside, u TO t, aside TO u"]
        yield [
            "ALTER TABLE t RENAME TO aside",
            f"DELETE FROM aside WHERE id < {self.random.randint(2, 20)}",
            "ALTER TABLE aside RENAME TO t",
        ]
        yield [
            "DROP TABLE t",
            "CREATE TABLE t (z VARCHAR(20), id BIGINT PRIMARY KEY, a DECIMAL(12,3))",
            f"INSERT INTO t (id, a) VALUES {self.rows(1)}",
        ]
        yield [
            "DROP TABLE IF EXISTS o",
            "CREATE TABLE n (PRIMARY KEY (id)) SELECT * FROM t WHERE id < 30",
            "RENAME TABLE t TO o, n TO t",
        ]
        yield [
            f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, {new} TEXT)",
            f"INSERT INTO t VALUES {self.rows(1)}",
        ]
        yield ["TRUNCATE TABLE t", "TRUNCATE TABLE u", f"INSERT INTO t (id) VALUES {self.rows(0)}"]
        yield [
            "DROP TABLE IF EXISTS u",
            "CREATE TABLE u LIKE t",
            "ALTER TABLE u REMOVE PARTITIONING",
            f"INSERT INTO u (id) VALUES ({self.random.randint(1, 19)})",
            "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
        ]


class PostgresTable(RandomTable):
    """A table of PostgreSQL."""

    KEY_AS_NUMBER = "id::int"

    def writes(self, number: int, turn: int) -> Sequence[str]:
        """What a writer executes at a turn."""
        id_ = turn * WRITERS % (4 * MOST_ROWS) + number
        one = "DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE id::int % {1} = {2} LIMIT 1)"
        return (
            one.format("t", WRITERS, number),
            f"INSERT INTO t (id) VALUES ({id_})",
            f"UPDATE t SET id = id::int + {4 * MOST_ROWS} WHERE id::int = {id_ - WRITERS}",
            f"INSERT INTO u (id) VALUES ({id_})",
            one.format("u", WRITERS, number),
        )

    def logs_old_rows(self, name: str) -> bool:
        """Whether a table has the replica identity FULL."""
        found = self.execute(f"SELECT relreplident::text FROM pg_class WHERE oid = to_regclass('{name}')")
        return bool(found) and found[0][0] == "f"

    def fields(self) -> list[Field]:
        """The columns besides `id`."""
        found = self.execute(
            "SELECT column_name::text, data_type::text, is_generated::text "
            "FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 't' "
            "AND column_name <> 'id' ORDER BY ordinal_position"
        )
        kinds = {"integer": "number", "bigint": "number", "numeric": "decimal"}
        return [Field(name, kinds.get(type_, "text"), made == "ALWAYS") for name, type_, made in found]

    def quoted(self, name: str) -> str:
        """A quoted name."""
        return f'"{name}"'

    def _new(self, name: str) -> Sequence[str]:
        return (
            f"CREATE TABLE {name} ({_COLUMNS})",
            f"INSERT INTO {name} (id, a, c) VALUES {self.rows(2)}",
        )

    def _new_partitioned(self) -> Sequence[str]:
        low, high = self.new_name(), self.new_name()
        return (
            f"CREATE TABLE t ({_COLUMNS}) PARTITION BY RANGE (id)",
            f"CREATE TABLE {low} PARTITION OF t FOR VALUES FROM (0) TO (20)",
            f"CREATE TABLE {high} PARTITION OF t DEFAULT",
            f"INSERT INTO t (id, a, c) VALUES {self.rows(2)}",
        )

    def _parts(self) -> list[str]:
        found = self.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass('t')"
        )
        return [name for (name,) in found]

    def _rekeyed(self, columns: str) -> str:
        found = self.execute(
            "SELECT conname::text FROM pg_constraint WHERE conrelid = to_regclass('t') AND contype = 'p'"
        )
        drop = "".join(f"DROP CONSTRAINT {name}, " for (name,) in found)
        return f"ALTER TABLE t {drop}ADD PRIMARY KEY ({columns})"

    def _off_the_key(self, field: Field) -> list[str]:
        """What must happen before a column is dropped: without a key, updates would be refused."""
        found = self.execute(
            "SELECT 1 FROM pg_index, pg_attribute WHERE indrelid = to_regclass('t') AND indisprimary"
            f" AND attrelid = indrelid AND attnum = ANY (indkey) AND attname = '{field.name}'"
        )
        return [self._rekeyed("id")] if found else []

    def shapes(self) -> Iterator[Sequence[str]]:
        """Schema changes that are possible now."""
        fields, one = self.fields(), self.random.choice
        new = self.new_name()
        type_, default = one([("int", "5"), ("text", "'y'"), ("numeric(10,2)", "1.25")])
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} DEFAULT {default}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} {type_} NOT NULL DEFAULT {default}"]
        yield [f"ALTER TABLE t ADD COLUMN {new} int GENERATED ALWAYS AS (id + 1) STORED"]
        yield ["TRUNCATE t"]
        yield ["DROP TABLE t", *self._new("t")]
        yield [
            "DROP TABLE IF EXISTS o",
            *self._new("n"),
            "BEGIN; ALTER TABLE t RENAME TO o; ALTER TABLE n RENAME TO t; COMMIT",
        ]
        for type_ in ("int", "bigint", "numeric(10,0)", "text"):
            yield [f"ALTER TABLE t ALTER id TYPE {type_} USING id::text::{type_}"]
        yield ["DROP TABLE t", *self._new_partitioned()]
        yield [f"ALTER TABLE t ADD COLUMN {new} int NOT NULL DEFAULT 0", self._rekeyed(f"id, {new}")]
        yield [self._rekeyed("id")]
        for part in self._parts():
            yield [f"ALTER TABLE t DETACH PARTITION {part}"]
            yield [f"TRUNCATE {part}"]
            yield [f"DROP TABLE {part}"]
            yield [
                f"ALTER TABLE t DETACH PARTITION {part}",
                f"UPDATE {part} SET d = -1",
                f"ALTER TABLE t ATTACH PARTITION {part} DEFAULT",
            ]
        yield from self._of_whole_tables(new)
        yield from self._of_types(new)
        yield [f"ALTER TABLE t ADD COLUMN {new} text DEFAULT clock_timestamp()::text"]
        yield [f"ALTER TABLE t ADD COLUMN {new} int GENERATED BY DEFAULT AS IDENTITY"]
        yield [f"ALTER TABLE t ADD CHECK (id::int > -1000), ADD COLUMN {new} {type_}"]
        yield [f"ALTER TABLE t ADD {new} int DEFAULT 5", f"ALTER TABLE t ALTER {new} DROP DEFAULT"]
        first = self.random.randint(1, MOST_ROWS)
        yield [
            _transaction(
                f"INSERT INTO t (id) VALUES ({first + 2 * MOST_ROWS})",
                f"ALTER TABLE t ADD {new} {type_} DEFAULT {default}",
                f"UPDATE t SET {new} = NULL WHERE id::int < {first}",
            )
        ]
        yield [
            _transaction(
                f"DELETE FROM t WHERE id::int = {first}",
                "SAVEPOINT s",
                f"ALTER TABLE t ADD {new} text",
                f"UPDATE t SET {new} = 'x'",
                "ROLLBACK TO s",
                f"ALTER TABLE t ADD {new} int",
                f"UPDATE t SET {new} = 4 WHERE id::int < {first}",
            )
        ]
        yield ["VACUUM FULL t"]
        for identity in ("DEFAULT", "FULL"):
            yield [f"ALTER TABLE t REPLICA IDENTITY {identity}"]
        if not fields:
            return
        field = one(fields)
        name = self.quoted(field.name)
        yield [*self._off_the_key(field), f"ALTER TABLE t DROP COLUMN {name}"]
        yield [f"ALTER TABLE t RENAME COLUMN {name} TO {new}"]
        yield [f"ALTER TABLE t ALTER {name} SET DEFAULT NULL"]
        yield [f"ALTER TABLE t ALTER {name} TYPE text USING {name}::text || '!'"]
        for type_ in ("int", "bigint", "numeric(12,3)", "numeric(10,1)", "text"):
            yield [f"ALTER TABLE t ALTER {name} TYPE {type_} USING {name}::text::{type_}"]
        if len(fields) > 1:
            gone, other = self.random.sample(fields, 2)
            first, second = self.quoted(gone.name), self.quoted(other.name)
            moved = f"ALTER TABLE t RENAME {second} TO {first}"
            aside = f"ALTER TABLE t RENAME {first} TO swapped"
            yield [f"BEGIN; {aside}; {moved}; ALTER TABLE t RENAME swapped TO {second}; COMMIT"]
            yield [*self._off_the_key(gone), f"BEGIN; ALTER TABLE t DROP {first}; {moved}; COMMIT"]

    def _of_whole_tables(self, new: str) -> Iterator[Sequence[str]]:
        """Another table under the name, for good or for a time; rows that go by TRUNCATE."""
        swap = [f"ALTER TABLE {a} RENAME TO {b}" for a, b in (("t", "aside"), ("u", "t"), ("aside", "u"))]
        first = self.random.randint(2, MOST_ROWS)
        yield ["DROP TABLE IF EXISTS u", *self._new("u")]
        yield [_transaction(*swap)]
        before, behind = (f"DELETE FROM t WHERE id::int {sign} {first}" for sign in "<>")
        yield [_transaction(before, *swap, behind)]
        yield [
            "ALTER TABLE t RENAME TO aside",
            f"DELETE FROM aside WHERE id::int < {first}",
            "ALTER TABLE aside RENAME TO t",
        ]
        yield [
            "CREATE SCHEMA IF NOT EXISTS hidden",
            "ALTER TABLE t SET SCHEMA hidden",
            f"DELETE FROM hidden.t WHERE id::int < {first}",
            "ALTER TABLE hidden.t SET SCHEMA public",
        ]
        yield [
            "DROP TABLE t",
            "CREATE TABLE t (z text, id bigint PRIMARY KEY, a numeric(12,3))",
            f"INSERT INTO t (id, a) VALUES {self.rows(1)}",
        ]
        yield [_transaction(before, "TRUNCATE t, u", f"INSERT INTO t (id) VALUES {self.rows(0)}")]
        yield [_transaction("SAVEPOINT s", "TRUNCATE t", "ROLLBACK TO s", before)]

    def _of_types(self, new: str) -> Iterator[Sequence[str]]:
        """Types of the user, whose labels and attributes change."""
        labels = _labels(range(10))
        yield [
            f"CREATE TYPE e{new} AS {labels}",
            f"ALTER TABLE t ADD {new} e{new}",
            f"UPDATE t SET {new} = 'x1' WHERE id::int < {self.random.randint(2, MOST_ROWS)}",
        ]
        yield [f"CREATE TYPE p{new} AS (x int)", f"ALTER TABLE t ADD {new} p{new} DEFAULT '(1)'"]
        found = self.execute(
            "SELECT t.typname::text, t.typtype::text FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid "
            "WHERE a.attrelid = to_regclass('t') AND t.typtype IN ('c', 'e') AND NOT a.attisdropped"
        )
        for type_, form in found:
            if form == "c":
                yield [f"ALTER TYPE {type_} ADD ATTRIBUTE {new} int"]
            else:
                label = self.random.choice(["x1", "5", "y"])
                yield [f"ALTER TYPE {type_} RENAME VALUE '{label}' TO 'l{new}'"]
                yield [f"ALTER TYPE {type_} ADD VALUE 'l{new}' BEFORE 'y'"]


def _labels(numbers: Iterable[int], kind: str = "ENUM") -> str:
    labels = [f"'{prefix}{number}'" for number in numbers for prefix in ("", "x", "ä")]
    return f"{kind}({', '.join(labels)}, 'y')"


def _transaction(*statements: str) -> str:
    return f"BEGIN; {'; '.join(statements)}; COMMIT"


def _rekeyed(columns: str) -> str:
    return f"ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY ({columns})"
