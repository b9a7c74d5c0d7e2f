"""The stream offset: the whole state of a stream, as the JSON that Spark stores.

    {"v": 2,
     "mode": "initial",                                   how the stream was started
     "log": {...position...},                             the log is read up to here
     "tables": {"shop.orders": {"c": [42], "n": 42, "e": 1000}},   snapshot unfinished: cursor, rows, estimate
     "done": {"shop.items": 7, "shop.old": null},         finished: rows read; null: never snapshotted
     "again": {"shop.items": {"id": "4f1c", "c": [3], "n": 3, "e": 7, "done": false,    read again;
                              "where": "price > 7",           where: only rows with that condition
                              "blocking": true}},             the log waits meanwhile
     "requests": ["01J9..."],                             requests that the stream has accepted
     "gaps": 0,                                           how often the log was lost, and joined again later
     "parked": {"shop.bad": {...}},                       left out for now, with the reason (`model.parked`)
     "forgot": false,                                     whether tables that were dropped are forgotten
     "partial": ["shop.log"],                             followed without their earlier rows, by an option
     "keys": {"shop.items": ["sku"]},                     keys that the log does not carry, by table
     "schema": [{"table": "shop.items", "changes": [...]}],   schema changes with which the batch begins
     "ids": {"shop.orders": "16384/16391"},               what else than its name a table is known by, if
                                                          the database has that (`Source.identities`)
     "shapes": {"shop.orders": {"is": [...], "at": {...position...}, "read": true}},
                                                          columns by which a table is known, likewise
     "paused": true,                                      whether the reading of rows is paused
     "waits": {"01JA...": {...position...}},              requests that wait until the log is read to there
     "signals": {"8f0a...": {...signal...}},              signals found in the log, obeyed a batch later
     "answers": [{...answer...}],                         what became of signals (`model.signal`)
     "set": {"tables": [...], "instead_of": [...]},       tables that a signal has set (`model.table_setting`)
     "ending": {"of": "latest", "at": {...position...}, "log_read": true, "reached": true},   where the stream
                                                          ends, and how near it is (`model.ending`)
     "columns": {"exclude": [...], "unchanged": false},   columns that are left out, and whether updates are
                                                          that change no others (`model.column_filter`)
     "declared": {"shop.orders": {"id": {"type": "int(11)", "comment": "number"}}}}   what the catalog says of
                                                          columns beyond the log (`model.declaration`)

A cursor is the greatest key already read, null before the first row. With a cursor, `k` is the key that it is
a value of: its columns and their types. A table that is read again stays among the finished ones: the stream
follows its log meanwhile. Its entry stays in the offset of the batch that ends the reading, with `done`, so
that sinks can delete what they did not see (`model.reread`); the batch after that one drops it. The offset's
size does not grow with rows or chunks. Spark compares offsets as text, so the order of keys is fixed. The
first offset, which Spark requests twice and never stores, is the constant {"v": 1}.

Version 1 lacks `again`, `requests`, `gaps` and `forgot`. It is written as long as they are empty: a pipeline
that has read no table again can go back to an older Tailrace. `k`, `keys`, `ids`, `schema`, `paused`,
`waits`, `signals` and `answers` were added later, and in `again` the request (`by`) that may be taken back,
and `blocking`; older versions ignore them. So was `shapes`: a table without one is read again after a change
of its columns. `ending`, `partial` and `declared` belong to options that older versions refuse. Version 3 has
`parked`, and is written while a table is: an older Tailrace would read such a table as a new one. Version 4
has `where`, and is written while a table is read with a condition: an older Tailrace would delete all other
rows. Version 5 has `set`, and is written while a signal's tables hold: an older Tailrace would capture those
of the option. Version 6 has `columns`, and is written while columns are left out: an older Tailrace would
take them in, without values in the rows that were read before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.errors import StateError
from tailrace.model.column_filter import ALL_COLUMNS, ColumnFilter
from tailrace.model.declaration import CatalogText, CatalogTexts
from tailrace.model.ending import Ending
from tailrace.model.key import key_from_json, key_to_json
from tailrace.model.parked import Parked, parked_tables
from tailrace.model.schema_change import SchemaEvent
from tailrace.model.signal import Answer, Signal
from tailrace.model.split import Key
from tailrace.model.table import Column, TableId
from tailrace.model.table_setting import TableSetting

VERSION = 6
#: Written while no columns are left out.
_SET_VERSION = 5
#: Written while no signal's tables hold either.
_WHERE_VERSION = 4
#: Written while no table is read with a condition either.
_PARKED_VERSION = 3
#: Written while no table is parked either, but something needs it.
_FORMER_VERSION = 2
#: Written while nothing needs a later version.
_OLD_VERSION = 1


@dataclass(frozen=True)
class TableProgress:
    """Progress of an unfinished snapshot.

    Args:
        cursor: greatest key read, None before the first row.
        rows: rows planned so far.
        estimated: total rows, as the catalog estimated when the table was added.
        key: the columns of the key that the cursor is a value of; None: not known, or no cursor.
    """

    cursor: Key | None = None
    rows: int = 0
    estimated: int = 0
    key: tuple[Column, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The progress as JSON values in a fixed order."""
        found: dict[str, Any] = {
            "c": None if self.cursor is None else list(self.cursor),
            "n": self.rows,
            "e": self.estimated,
        }
        if self.cursor is not None and self.key is not None:
            found["k"] = key_to_json(self.key)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableProgress:
        """Read the progress that `to_json` wrote."""
        cursor, key = value["c"], value.get("k")
        return cls(
            None if cursor is None else tuple(cursor),
            value["n"],
            value["e"],
            None if key is None else key_from_json(key),
        )


@dataclass(frozen=True)
class RereadProgress:
    """Progress of a table that is read again.

    Args:
        id: identifies this reading; another one of the same table has another id.
        progress: how far it is.
        done: whether the last row has been read.
        by: the request or signal that asked for it and may be taken back; None: the target is wrong without
            the reading.
        where: the condition of the rows that are read; None: all of them, and others are deleted.
        blocking: whether the log waits meanwhile, so that all rows are as of one position.
    """

    id: str
    progress: TableProgress = field(default_factory=TableProgress)
    done: bool = False
    by: str | None = None
    where: str | None = None
    blocking: bool = False

    def to_json(self) -> dict[str, Any]:
        """The progress as JSON values in a fixed order."""
        found = {"id": self.id, **self.progress.to_json(), "done": self.done}
        if self.by is not None:
            found["by"] = self.by
        if self.where is not None:
            found["where"] = self.where
        if self.blocking:
            found["blocking"] = True
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RereadProgress:
        """Read the progress that `to_json` wrote."""
        progress = TableProgress.from_json(value)
        blocking = value.get("blocking", False)
        return cls(value["id"], progress, value["done"], value.get("by"), value.get("where"), blocking)


@dataclass(frozen=True)
class KnownShape:
    """The columns by which a stream knows a table whose schema changes are not in the log.

    Args:
        shape: the columns (`Source.shapes`).
        at: where in the log the table has these columns, or had them already, as the position's JSON; None:
            at the stream's position.
        read: whether the last rows of the table are read in the batch that ends here: a schema change that
            came before they were may have taken something from them.
    """

    shape: Any
    at: Mapping[str, Any] | None = None
    read: bool = False

    def to_json(self) -> dict[str, Any]:
        """The shape as JSON values in a fixed order."""
        found: dict[str, Any] = {"is": self.shape}
        if self.at is not None:
            found["at"] = dict(self.at)
        if self.read:
            found["read"] = True
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KnownShape:
        """Read the shape that `to_json` wrote."""
        return cls(value["is"], value.get("at"), value.get("read", False))


@dataclass(frozen=True)
class StreamOffset:
    """A stream's state between two batches.

    Args:
        mode: `startingPosition` at the start of the stream; "" before the first batch.
        log: position up to which the log is read, as JSON; None before the first batch.
        tables: unfinished snapshots by table name.
        done: finished snapshots by table name: rows read, or None for tables followed without a snapshot.
        again: tables that are read again, by name; all of them are in `done`, too.
        requests: ids of the requests that the stream has accepted and that may still lie in its directory.
        gaps: how often the log before `log` was lost. A batch in which it grows reads no log.
        forgot: whether the stream has forgotten tables that were dropped: if one of that name appears, its
            target may hold rows.
        keys: the key under which the stream reads a table, where the log does not carry it.
        ids: identities of the stream's tables, by name, as far as they are known.
        schema: schema changes of the batch that ends here, in log order (`model.schema_change`).
        parked: tables that the stream leaves out; they are in none of the other mappings but `keys`.
        paused: whether no rows of tables are read, in first snapshots or again.
        waits: requests to read tables again that wait until the log is read up to a position.
        signals: signals that were found in the log up to here, by the ids of their requests.
        answers: what became of signals in the batch that ends here.
        setting: the tables that a signal has set; None: those of the option `tables` are captured.
        shapes: the columns by which the stream knows its tables, by name, as far as the log lacks them.
        columns: the columns that are captured, in the batch that ends here.
        ending: where the stream ends; None: nowhere.
        declared: what the catalog says of columns, in the batch that ends here; None: nobody asks for it.
        partial: tables whose earlier rows the stream leaves out (`snapshot.include.collection.list`), sorted:
            their targets do not hold the whole tables.
    """

    mode: str = ""
    log: Mapping[str, Any] | None = None
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    done: Mapping[str, int | None] = field(default_factory=dict)
    again: Mapping[str, RereadProgress] = field(default_factory=dict)
    requests: tuple[str, ...] = ()
    gaps: int = 0
    forgot: bool = False
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    schema: tuple[SchemaEvent, ...] = ()
    parked: Mapping[str, Parked] = field(default_factory=dict)
    paused: bool = False
    waits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signals: Mapping[str, Signal] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    setting: TableSetting | None = None
    shapes: Mapping[str, KnownShape] = field(default_factory=dict)
    columns: ColumnFilter = ALL_COLUMNS
    ending: Ending | None = None
    partial: tuple[str, ...] = ()
    declared: CatalogTexts | None = None

    @property
    def is_new(self) -> bool:
        """Whether no batch has been planned yet."""
        return self.log is None

    @property
    def not_whole(self) -> frozenset[str]:
        """The tables whose earlier rows are left out, and not being read after all."""
        read = {name for name, reread in self.again.items() if reread.where is None}
        return frozenset(self.partial) - read

    def knows(self, name: str) -> bool:
        """Whether the table is part of the stream."""
        return name in self.tables or name in self.done or name in self.parked

    def names(self) -> list[str]:
        """The names of the tables that the stream follows, dropped ones too, parked ones not."""
        return [*self.tables, *self.done]

    def table_ids(self) -> list[TableId]:
        """The tables of `names`, as far as a name tells where that of its database ends."""
        return [TableId.parse(name) for name in self.names() if name.count(".") == 1]

    def with_table(self, name: str, progress: TableProgress) -> StreamOffset:
        """A copy with the snapshot of `name` unfinished, at `progress`."""
        return replace(self, tables={**self.tables, name: progress})

    def with_done(self, name: str, rows: int | None) -> StreamOffset:
        """A copy with the snapshot of `name` finished after `rows` rows (None: without a snapshot)."""
        tables = {n: p for n, p in self.tables.items() if n != name}
        return replace(self, tables=tables, done={**self.done, name: rows})

    def with_reread(self, name: str, reread: RereadProgress) -> StreamOffset:
        """A copy in which `name` is read again, at `reread`; an unfinished first snapshot ends with it."""
        known = self
        if name not in self.done:
            progress = self.tables.get(name)
            known = self.with_done(name, None if progress is None else progress.rows)
        if reread.done and reread.where is None:
            known = known.with_partial(set(self.partial) - {name})
        return replace(known, again={**self.again, name: reread})

    def with_partial(self, names: Collection[str]) -> StreamOffset:
        """A copy in which `names` are the tables whose earlier rows are left out."""
        return replace(self, partial=tuple(sorted(names)))

    def read_before(self, former: StreamOffset) -> list[str]:
        """The tables of which a first snapshot from here would bring rows that targets have by `former`."""
        begun = {name for name, progress in former.tables.items() if progress.cursor is not None}
        same = {name for name in begun if self.tables.get(name) == former.tables[name]}
        had = begun | former.done.keys() | former.parked.keys()
        return sorted(had - same - self.done.keys() - self.parked.keys())

    def without(self, name: str) -> StreamOffset:
        """A copy that knows nothing of the table `name`, except that it has forgotten one."""
        return replace(
            self.without_rereads({name}),
            tables={n: p for n, p in self.tables.items() if n != name},
            done={n: rows for n, rows in self.done.items() if n != name},
            keys={n: key for n, key in self.keys.items() if n != name},
            ids={n: id_ for n, id_ in self.ids.items() if n != name},
            shapes={n: shape for n, shape in self.shapes.items() if n != name},
            parked={n: p for n, p in self.parked.items() if n != name},
            partial=tuple(n for n in self.partial if n != name),
            forgot=True,
        )

    def without_rereads(self, names: set[str]) -> StreamOffset:
        """A copy in which none of `names` is read again."""
        if not names & self.again.keys():
            return self
        return replace(self, again={n: r for n, r in self.again.items() if n not in names})

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON values in a fixed order."""
        if self.log is None:
            return {"v": _OLD_VERSION}
        value = {
            "v": _OLD_VERSION,
            "mode": self.mode,
            "log": dict(self.log),
            "tables": {n: p.to_json() for n, p in sorted(self.tables.items())},
            "done": dict(sorted(self.done.items())),
        }
        if self.ids:
            value["ids"] = dict(sorted(self.ids.items()))
        if self.shapes:
            value["shapes"] = {n: shape.to_json() for n, shape in sorted(self.shapes.items())}
        if self.partial:
            value["partial"] = list(self.partial)
        if self.keys:
            value["keys"] = {n: list(key) for n, key in sorted(self.keys.items())}
        if self.schema:
            value["schema"] = [event.to_json() for event in self.schema]
        if self.parked:
            value["parked"] = {n: p.to_json() for n, p in sorted(self.parked.items())}
        if self.paused:
            value["paused"] = True
        if self.waits:
            value["waits"] = {id_: dict(position) for id_, position in self.waits.items()}
        if self.signals:
            value["signals"] = {id_: signal.to_json() for id_, signal in self.signals.items()}
        if self.answers:
            value["answers"] = [answer.to_json() for answer in self.answers]
        if self.setting is not None:
            value["set"] = self.setting.to_json()
        if self.ending is not None:
            value["ending"] = self.ending.to_json()
        if self.columns != ALL_COLUMNS:
            value["columns"] = self.columns.to_json()
        if self.declared is not None:
            value["declared"] = {
                name: {column: text.to_json() for column, text in sorted(texts.items())}
                for name, texts in sorted(self.declared.items())
            }
        plain = not (self.again or self.requests or self.gaps or self.forgot or self.parked)
        if not plain or self.setting or self.columns.has_lists:
            value["v"] = self._version()
            value["again"] = {n: r.to_json() for n, r in sorted(self.again.items())}
            value["requests"] = list(self.requests)
            value["gaps"] = self.gaps
            value["forgot"] = self.forgot
        return value

    def _version(self) -> int:
        if self.columns.has_lists:
            return VERSION
        if self.setting is not None:
            return _SET_VERSION
        if any(reread.where is not None for reread in self.again.values()):
            return _WHERE_VERSION
        return _PARKED_VERSION if self.parked else _FORMER_VERSION

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read the offset that `to_json` wrote.

        Raises:
            StateError: a newer Tailrace wrote it, or it is not an offset of Tailrace.
        """
        version = value.get("v")
        if version not in range(_OLD_VERSION, VERSION + 1):
            raise StateError(
                "the checkpoint's offset cannot be read",
                f"found version {version!r}, this Tailrace supports versions {_OLD_VERSION} to {VERSION}",
                "use the version of Tailrace that wrote it, or a newer one",
                code="TR-6001",
            )
        if "log" not in value:
            return cls()
        return cls(
            value["mode"],
            value["log"],
            {n: TableProgress.from_json(p) for n, p in value["tables"].items()},
            dict(value["done"]),
            {n: RereadProgress.from_json(r) for n, r in value.get("again", {}).items()},
            tuple(value.get("requests", ())),
            value.get("gaps", 0),
            value.get("forgot", False),
            {n: tuple(key) for n, key in value.get("keys", {}).items()},
            dict(value.get("ids", {})),
            tuple(SchemaEvent.from_json(event) for event in value.get("schema", ())),
            parked_tables(value),
            value.get("paused", False),
            dict(value.get("waits", {})),
            {id_: Signal.from_json(signal) for id_, signal in value.get("signals", {}).items()},
            tuple(Answer.from_json(answer) for answer in value.get("answers", ())),
            None if value.get("set") is None else TableSetting.from_json(value["set"]),
            {n: KnownShape.from_json(shape) for n, shape in value.get("shapes", {}).items()},
            ColumnFilter.from_json(value.get("columns", {})),
            None if value.get("ending") is None else Ending.from_json(value["ending"]),
            tuple(value.get("partial", ())),
            None if "declared" not in value else _declared(value["declared"]),
        )


def _declared(value: Mapping[str, Any]) -> CatalogTexts:
    return {
        name: {column: CatalogText.from_json(text) for column, text in texts.items()}
        for name, texts in value.items()
    }
