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
#: Rows have ids from 1 to this.
MOST_ROWS = 60


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
    """The table `t`, with the key `id`.

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
        """The table with rows in half of its ids."""
        self.run(*self._new("t"))

    def change_rows(self, statements: int) -> None:
        """Insert, update and delete rows."""
        for _ in range(statements):
            fields = [f for f in self.fields() if not f.is_generated]
            first = self.random.randint(1, MOST_ROWS)
            where = f"{self.KEY_AS_NUMBER} BETWEEN {first} AND {first + self.random.randint(0, 5)}"
            match self.random.choice("iiuud"):
                case "i":
                    names = ", ".join(["id", *(self.quoted(f.name) for f in fields)])
                    values = ", ".join([str(first), *(self._value(f) for f in fields)])
                    self.attempt(f"INSERT INTO t ({names}) VALUES ({values})")
                case "u" if fields:
                    field = self.random.choice(fields)
                    self.attempt(
                        f"UPDATE t SET {self.quoted(field.name)} = {self._value(field)} WHERE {where}"
                    )
                case _:
                    self.attempt(f"DELETE FROM t WHERE {where}")

    def change_shape(self) -> None:
        """One random schema change; the server may refuse it."""
        statements = self.random.choice(list(self.shapes()))
        for statement in statements:
            if not self.attempt(statement):
                return

    def logs_old_rows(self) -> bool:
        """Whether the log has the whole row before an update or a delete."""
        return True

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
        yield [f"ALTER TABLE t ADD COLUMN {new} INT NOT NULL DEFAULT 0", _rekeyed(f"id, {new}")]
        yield [_rekeyed("id")]
        if not fields:
            return
        name = self.quoted(one(fields).name)
        yield [f"ALTER TABLE t DROP COLUMN {name}"]
        yield [f"ALTER TABLE t RENAME COLUMN {name} TO {new}"]
        yield [f"ALTER TABLE t CHANGE {name} {new} BIGINT"]
        for type_ in (
            "INT",
            "BIGINT",
            "DECIMAL(12,3)",
            "DECIMAL(10,1)",
            "VARCHAR(40)",
            "VARCHAR(20) NOT NULL",
            "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            _labels(range(10)),
            _labels(reversed(range(10))),
            "INT AS (id + 2) STORED",
            "INT AS (id + 3) VIRTUAL",
        ):
            yield [f"ALTER TABLE t MODIFY {name} {type_}"]
        if len(fields) > 1:
            first, second = (self.quoted(f.name) for f in self.random.sample(fields, 2))
            yield [f"ALTER TABLE t RENAME COLUMN {first} TO {second}, RENAME COLUMN {second} TO {first}"]
            yield [f"ALTER TABLE t DROP COLUMN {first}, RENAME COLUMN {second} TO {first}"]


class PostgresTable(RandomTable):
    """A table of PostgreSQL."""

    KEY_AS_NUMBER = "id::int"

    def logs_old_rows(self) -> bool:
        """Whether the table has the replica identity FULL."""
        found = self.execute("SELECT relreplident::text FROM pg_class WHERE oid = to_regclass('t')")
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


def _labels(numbers: Iterable[int]) -> str:
    labels = [f"'{prefix}{number}'" for number in numbers for prefix in ("", "x", "ä")]
    return f"ENUM({', '.join(labels)}, 'y')"


def _rekeyed(columns: str) -> str:
    return f"ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY ({columns})"
