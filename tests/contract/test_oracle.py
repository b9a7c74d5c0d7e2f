"""The Oracle adapter against a stand-in (`tests.support.oracle`): snapshots, log, and what stops a stream.

Nothing here was compared with a server: see docs/design/0012-oracle.md.
"""

from __future__ import annotations

import json
import random
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.options import SourceOptions, parse_options
from tailrace.enumerator.enumerator import Limits
from tailrace.errors import (
    ConfigError,
    DecodeError,
    PositionLostError,
    PreflightError,
    SchemaMismatchError,
    SourceError,
    TailraceError,
    TransientSourceError,
)
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.row import to_rows
from tailrace.sources import registry
from tailrace.sources.oracle import connection
from tailrace.sources.oracle.logminer import follower
from tests.support.engine import Engine, Held, changes_of, multiset, rows_of
from tests.support.oracle import Column, OracleServer

ID = Column("ID", "NUMBER", precision=10, scale=0, nullable=False)
NAME = Column("NAME", "VARCHAR2", length=400)
T = "SHOP.T"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> OracleServer:
    found = OracleServer()
    monkeypatch.setattr(connection, "open_raw", lambda *_: (found.connection(), True))
    monkeypatch.setattr(follower, "POLL_S", 0.0)
    found.create("T", [ID, NAME], ("ID",))
    return found


def options(**given: Any) -> SourceOptions:
    return parse_options(
        {
            "url": "oracle://db.example:1521/FREEPDB1",
            "user": "tailrace",
            "password": "x",
            "tables": r"SHOP\..*",
            "snapshotProtection": "none",
            "retryTimeoutMs": "200",
            **{name: str(value) for name, value in given.items()},
        }
    )


def fill(server: OracleServer, count: int, first: int = 1) -> None:
    transaction = server.begin()
    for number in range(first, first + count):
        transaction.insert("T", ID=number, NAME=f"n{number}")
    transaction.commit()


def state_at(
    server: OracleServer, scn: int, upto: int | None = None
) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = server.tables["T"].at(scn).values()
    return {(r["ID"],): r for r in rows if upto is None or r["ID"] <= upto}


def drive(engine: Engine, held: Held, server: OracleServer, limits: Limits | None = None) -> int:
    """Take batches until there is nothing new; each is read twice, and the target is compared after each."""
    batches = 0
    while (offsets := engine.next(limits)) is not None:
        first, second = engine.read(*offsets), engine.read(*offsets)
        assert multiset(first[0]) == multiset(second[0])
        assert multiset(first[1]) == multiset(second[1])
        held.take(*first)
        end = offsets[1]
        assert end.log is not None
        progress = end.tables.get(T)
        cursor = None if progress is None else (0 if progress.cursor is None else progress.cursor[0])
        assert held.state == state_at(server, end.log["scn"], cursor)
        batches += 1
    return batches


def drain(engine: Engine) -> None:
    """Take batches until there is nothing new."""
    while (offsets := engine.next()) is not None:
        engine.read(*offsets)


def test_a_snapshot_and_the_log_meet_exactly(server: OracleServer) -> None:
    fill(server, 40)
    with Engine(options(snapshotChunkRows=7), parallelism=2) as engine:
        held = Held(engine, ("ID",))
        rng = random.Random(5)
        for round_ in range(12):
            offsets = engine.next()
            transaction = server.begin()
            alive = sorted(r["ID"] for r in server.tables["T"].at(server.scn).values())
            for key in rng.sample(alive, 4):
                transaction.update("T", {"ID": key}, NAME=f"r{round_}-{key}")
            transaction.delete("T", ID=rng.choice(alive))
            transaction.insert("T", ID=1000 + round_, NAME="new")
            transaction.commit()
            if offsets is not None:
                held.take(*engine.read(*offsets))  # its rows are as of its end, whatever came since
                progress = offsets[1].tables.get(T)
                cursor = None if progress is None else (progress.cursor or (0,))[0]
                assert held.state == state_at(server, offsets[1].log["scn"], cursor)
        server.begin().commit()
        drive(engine, held, server)
        assert held.state == state_at(server, server.scn)
        assert held.seqs == sorted(held.seqs)


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_followed_exactly(server: OracleServer, seed: int) -> None:
    rng = random.Random(seed)
    fill(server, 5)
    opened = [server.begin()]
    locked: dict[int, Any] = {}
    next_id = 100
    with Engine(options(snapshotChunkRows=3)) as engine:
        held = Held(engine, ("ID",))
        for step in range(160):
            transaction = rng.choice(opened)
            action = rng.random()
            free = [
                r["ID"]
                for r in server.tables["T"].at(server.scn).values()
                if locked.get(r["ID"], transaction) is transaction
            ]
            mine = [i for i in free if locked.get(i) is not transaction]
            if action < 0.25:
                transaction.insert("T", ID=next_id, NAME="x" * rng.choice([1, 200]))
                locked[next_id] = transaction
                next_id += 1
            elif action < 0.5 and mine:
                key = rng.choice(mine)
                savepoint = transaction.savepoint() if rng.random() < 0.3 else None
                transaction.update("T", {"ID": key}, NAME=f"s{step}")
                locked[key] = transaction
                if savepoint is not None:
                    transaction.rollback_to(savepoint)
            elif action < 0.55 and mine:
                key = rng.choice(mine)
                transaction.delete("T", ID=key)
                locked[key] = transaction
            elif action < 0.75:
                transaction.rollback() if rng.random() < 0.2 else transaction.commit()
                locked = {k: t for k, t in locked.items() if t is not transaction}
                opened.remove(transaction)
                opened.append(server.begin())
            elif action < 0.8 and len(opened) < 4:
                opened.append(server.begin())
            elif action < 0.85:
                server.switch()
            else:
                drive(engine, held, server, Limits(rng.choice([2, 1000]), None))
        for transaction in opened:
            transaction.commit()
        server.begin().commit()
        drive(engine, held, server)
        assert held.state == state_at(server, server.scn)


def test_transactions_of_one_scn_are_in_one_batch_in_the_order_of_their_commits(server: OracleServer) -> None:
    fill(server, 2)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        first, second, third = server.begin(), server.begin(), server.begin()
        third.insert("T", ID=30, NAME="c")
        second.insert("T", ID=20, NAME="b")
        first.insert("T", ID=10, NAME="a")
        scn = first.commit()
        second.commit(scn=scn)
        third.commit(scn=scn)
        fill(server, 1, first=40)
        server.begin().commit()
        start, end = engine.next(Limits(1, None))
        assert end.log["scn"] == scn
        _, log = engine.read(start, end)
        assert [after["ID"] for _, _, after, _ in changes_of(log)] == [10, 20, 30]
        seqs = [seq for *_, seq in changes_of(log)]
        assert seqs == sorted(set(seqs))


def test_what_is_not_on_disk_yet_is_left_for_the_next_batch(server: OracleServer) -> None:
    fill(server, 1)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        server.written = server.scn
        fill(server, 1, first=50)  # committed, and visible to a SELECT
        assert engine.next() is None
        server.written = server.scn - 1  # its changes are there, its commit is not
        assert engine.next() is None
        server.written = None
        server.begin()
        drive(engine, held, server)
        assert (50,) in held.state


def test_a_transaction_that_is_older_than_the_stream_is_emitted_as_a_whole(server: OracleServer) -> None:
    fill(server, 3)
    old = server.begin()
    old.update("T", {"ID": 1}, NAME="before the stream")
    server.switch()
    server.switch()
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        assert held.state[1,]["NAME"] == "n1"
        old.update("T", {"ID": 2}, NAME="behind its start")
        old.commit()
        server.begin().commit()
        drive(engine, held, server)
        assert [held.state[n,]["NAME"] for n in (1, 2, 3)] == ["before the stream", "behind its start", "n3"]


def test_an_archived_log_that_an_open_transaction_needs_is_a_lost_position(server: OracleServer) -> None:
    fill(server, 1)
    old = server.begin()
    old.insert("T", ID=9, NAME="x")
    server.switch()
    server.switch()
    server.switch()
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        offset = engine.offset
    server.remove_archived(1)
    server.switch()
    with Engine(options()) as engine:
        engine.offset = offset
        with pytest.raises(PositionLostError) as raised:
            engine.next()
    assert raised.value.code == "TR-4616"
    assert not registry.source(options()).has_log(registry.source(options()).position(offset.log))


def test_another_database_is_not_followed(server: OracleServer) -> None:
    with Engine(options()) as engine:
        engine.next()
        offset = engine.offset
    server.settings["dbid"] = 4712
    with Engine(options()) as engine:
        engine.offset = offset
        with pytest.raises(PositionLostError) as raised:
            engine.next()
    assert raised.value.code == "TR-4623"


WIDER = [ID, NAME, Column("NOTE", "VARCHAR2", length=10)]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ('ALTER TABLE "SHOP"."T" ADD ("NOTE" VARCHAR2(10))', WIDER),
        ('TRUNCATE TABLE "SHOP"."T"', None),
    ],
)
def test_a_table_that_is_altered_behind_unread_changes_is_read_again(
    server: OracleServer, sql: str, columns: list[Column] | None
) -> None:
    fill(server, 5)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        fill(server, 2, first=20)  # LogMiner does not describe them once the table is altered
        if columns is not None:
            for _, _, values in server.tables["T"].versions:
                if values is not None:
                    values["NOTE"] = None
        server.ddl("T", sql, columns=columns)
        server.tick(5)
        transaction = server.begin()
        transaction.insert("T", ID=99, NAME="after")
        transaction.commit()
        server.begin().commit()
        again: list[dict[str, Any]] = []
        log: list[dict[str, Any]] = []
        while (offsets := engine.next()) is not None:
            read, changes = engine.read(*offsets)
            again += rows_of(read)
            log += rows_of(changes)
        rows = {r["ID"]: r for r in [*log, *again]}
        assert rows == {r["ID"]: r for r in server.tables["T"].at(server.scn).values()}
        assert {r["ID"] for r in log} <= {99}


@pytest.mark.parametrize(
    ("sql", "more"),
    [
        ('ALTER TABLE "SHOP"."T" ADD ("NOTE" VARCHAR2(10))', {"startingPosition": "latest"}),
        ('ALTER TABLE "SHOP"."T" ADD ("NOTE" VARCHAR2(10))', {"onRewrite": "ignore"}),
        ('TRUNCATE TABLE "SHOP"."T"', {"startingPosition": "latest"}),
        ('TRUNCATE TABLE "SHOP"."T"', {"onTruncate": "ignore"}),
        ('TRUNCATE TABLE "SHOP"."T"', {"exclude.schema.changes": "truncate.table"}),
        ('DROP TABLE "SHOP"."T"', {}),
    ],
)
def test_unread_changes_that_cannot_be_described_are_an_error(
    server: OracleServer, sql: str, more: dict[str, str]
) -> None:
    server.create("OTHER", [ID], ("ID",))
    with Engine(options(**more)) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        fill(server, 2, first=20)
        server.ddl("T", sql)
        server.begin().commit()
        with pytest.raises(SchemaMismatchError) as raised:
            drain(engine)
    assert raised.value.code == "TR-4612"
    assert raised.value.table == T


def test_an_altered_table_is_an_error_where_a_planned_batch_is_read_too_late(server: OracleServer) -> None:
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        fill(server, 2)
        server.begin().commit()
        offsets = engine.next()
        server.ddl("T", 'ALTER TABLE "SHOP"."T" ADD ("NOTE" VARCHAR2(10))')
        server.begin().commit()
        with pytest.raises(SchemaMismatchError) as raised:
            engine.read(*offsets)
    assert raised.value.code == "TR-4612"


def test_a_table_that_was_altered_in_a_way_that_the_log_does_not_say_is_an_error(
    server: OracleServer,
) -> None:
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        fill(server, 2)
        server.begin().commit()
        offsets = engine.next()
        server.tables["T"].altered = server.now
        with pytest.raises(SchemaMismatchError) as raised:
            engine.read(*offsets)
    assert raised.value.code == "TR-4612"
    assert "does not say how" in (raised.value.detail or "")


def test_grants_and_indexes_do_not_disturb(server: OracleServer) -> None:
    fill(server, 2)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        fill(server, 2, first=20)
        server.ddl("T", 'GRANT SELECT ON "SHOP"."T" TO "X"')
        server.ddl("T", 'CREATE INDEX "SHOP"."I" ON "SHOP"."T" ("NAME")')
        server.begin().commit()
        drive(engine, held, server)
        assert held.state == state_at(server, server.scn)


def test_a_catalog_that_changes_while_the_log_is_read_is_read_again(server: OracleServer) -> None:
    fill(server, 2)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        fill(server, 2, first=20)
        server.begin().commit()
        offsets = engine.next()
        runs = server.runs
        server.after_run.append(lambda: server.ddl("T", 'GRANT SELECT ON "SHOP"."T" TO "X"'))
        held.take(*engine.read(*offsets))
        assert server.runs > runs + 2
        assert held.state == state_at(server, offsets[1].log["scn"])


@pytest.mark.parametrize("is_new", [True, False])
def test_a_table_that_comes_to_have_a_column_of_no_captured_type_is_refused(
    server: OracleServer, is_new: bool
) -> None:
    fill(server, 2)
    lob = [ID, NAME, Column("C", "CLOB")]
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        if is_new:
            server.create("NEW", lob, ("ID",))
        else:
            server.ddl("T", 'ALTER TABLE "SHOP"."T" ADD (C CLOB)', columns=lob)
        server.begin().commit()
        engine.plan._captured._read_at = None  # the catalog is searched for new tables now and then
        with pytest.raises(PreflightError) as raised:
            drain(engine)
    assert (raised.value.code, raised.value.table) == ("TR-4609", "SHOP.NEW" if is_new else T)


def test_rows_that_lack_columns_are_an_error(server: OracleServer) -> None:
    fill(server, 2)
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        server.tables["T"].logs_all = False
        transaction = server.begin()
        transaction.delete("T", ID=1)
        transaction.commit()
        server.begin().commit()
        offsets = engine.next()
        with pytest.raises(SchemaMismatchError) as raised:
            engine.read(*offsets)
    assert raised.value.code == "TR-4613"
    assert "without NAME" in (raised.value.detail or "")


@pytest.mark.parametrize(
    ("spoil", "code", "kind"),
    [
        (lambda r: setattr(r, "status", 2), "TR-4612", SchemaMismatchError),
        (lambda r: setattr(r, "sql", "select 'secret' from dual"), "TR-4614", DecodeError),
        (lambda r: setattr(r, "op", 255), "TR-4622", SchemaMismatchError),
        (lambda r: setattr(r, "parent", "0102030405060708"), "TR-4622", SchemaMismatchError),
        (lambda r: setattr(r, "csf", 1), "TR-4615", DecodeError),
        (lambda r: setattr(r, "undoes", 1), "TR-4615", DecodeError),
    ],
)
def test_records_that_cannot_be_read_stop_the_stream(
    server: OracleServer, spoil: Any, code: str, kind: type[TailraceError]
) -> None:
    fill(server, 1)
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        fill(server, 2, first=20)
        server.begin().commit()
        offsets = engine.next()
        spoil([r for r in server.redo if r.op == 1][-1])
        with pytest.raises(kind) as raised:
            engine.read(*offsets)
    assert raised.value.code == code
    assert "secret" not in str(raised.value)


def test_missing_scns_stop_the_stream(server: OracleServer) -> None:
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        server.log("", 34)
        server.begin().commit()
        with pytest.raises(DecodeError) as raised:
            engine.next()
    assert raised.value.code == "TR-4614"


def test_rows_whose_undo_is_gone_are_an_error_that_says_so(server: OracleServer) -> None:
    fill(server, 2)
    with Engine(options()) as engine:
        offsets = engine.next()
        server.tick(100)
        server.undo_from = server.scn
        with pytest.raises(SourceError) as raised:
            engine.read(*offsets)
    assert raised.value.code == "TR-4618"
    assert "UNDO_RETENTION" in (raised.value.hint or "")


def test_an_online_log_that_is_written_over_is_read_again(server: OracleServer) -> None:
    fill(server, 1)
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        fill(server, 1, first=30)

        def switch_twice() -> None:
            server.switch()
            server.switch()
            server.begin().commit()

        server.after_run.append(switch_twice)
        drive(engine, held, server)
        assert (30,) in held.state


def test_a_transaction_without_an_scn_delays_the_start(server: OracleServer) -> None:
    from tailrace.sources.oracle import clock
    from tailrace.sources.oracle.connection import Connection

    server.begin().start = 0
    waits: list[float] = []
    with pytest.raises(TransientSourceError) as raised:
        clock.present(Connection(server.connection()), waits.append)
    assert raised.value.code == "TR-4617"
    assert len(waits) == 20


EVERY_TYPE = [
    ID,
    Column("BIG", "NUMBER", precision=18, scale=0),
    Column("AMOUNT", "NUMBER", precision=10, scale=2),
    Column("ANY", "NUMBER"),
    Column("TEXT", "VARCHAR2", length=100),
    Column("NTEXT", "NVARCHAR2", length=100),
    Column("BIN", "RAW", length=16),
    Column("DAY", "DATE"),
    Column("AT", "TIMESTAMP(6)", scale=6),
    Column("LOCAL", "TIMESTAMP(6) WITH LOCAL TIME ZONE", scale=6),
    Column("ZONED", "TIMESTAMP(6) WITH TIME ZONE", scale=6),
    Column("GUESS", "NUMBER", precision=10, scale=2, virtual=True),
]
VALUES = {
    "BIG": 123456789012345678,
    "AMOUNT": Decimal("12.50"),
    "ANY": Decimal("0.0000001"),
    "TEXT": 'it\'s "quoted" \\ 日本 😀, and (x)',
    "NTEXT": "nätiönal 😀",
    "BIN": b"\x00\xff'",
    "DAY": datetime(2026, 2, 28, 23, 59, 59),  # noqa: DTZ001
    "AT": datetime(2026, 2, 28, 1, 2, 3, 456789),  # noqa: DTZ001
    "LOCAL": datetime(2026, 2, 28, 1, 2, 3, 5),  # noqa: DTZ001
    "ZONED": "2026-02-28 01:02:03.000000000 +02:00",
}


def test_a_value_is_the_same_from_the_snapshot_and_from_the_log(server: OracleServer) -> None:
    server.create("E", EVERY_TYPE, ("ID",))
    transaction = server.begin()
    transaction.insert("E", ID=1, **VALUES)
    transaction.insert("E", ID=2)
    transaction.commit()
    rows: dict[int, dict[str, Any]] = {}
    log: dict[int, dict[str, Any]] = {}
    with Engine(options(tables=r"SHOP\.E")) as engine:
        for first in (1, 11):
            while (offsets := engine.next()) is not None:
                snapshot, changes = engine.read(*offsets)
                rows |= {r["ID"]: r for r in rows_of(snapshot)}
                log |= {r["ID"]: r for r in rows_of(changes)}
            if first == 1:
                transaction = server.begin()
                transaction.insert("E", ID=11, **VALUES)
                transaction.insert("E", ID=12)
                transaction.commit()
                server.begin().commit()
    assert {**rows[1], "ID": 0} == {**log[11], "ID": 0}
    assert {**rows[2], "ID": 0} == {**log[12], "ID": 0}
    assert set(rows[2].values()) == {2, None}
    assert rows[1]["AMOUNT"] == Decimal("12.50")
    assert rows[1]["ANY"] == "0.0000001"
    assert rows[1]["TEXT"] == VALUES["TEXT"]
    assert rows[1]["NTEXT"] == VALUES["NTEXT"]
    assert rows[1]["BIN"] == VALUES["BIN"]
    assert rows[1]["AT"] == VALUES["AT"]
    assert rows[1]["LOCAL"].isoformat() == "2026-02-28T01:02:03.000005+00:00"
    assert rows[1]["ZONED"] == VALUES["ZONED"]


KEYS = [
    (Column("K", "NUMBER", nullable=False), [Decimal(n) for n in (-5, 0, 2, 10, 100)]),
    (Column("K", "VARCHAR2", length=20, nullable=False), ["A", "Z", "a", "é", "😀"]),
    (Column("K", "RAW", length=8, nullable=False), [b"\x00", b"\x01\x00", b"\xff"]),
    (Column("K", "DATE", nullable=False), [datetime(1999, 1, d) for d in range(1, 6)]),  # noqa: DTZ001
    (
        Column("K", "TIMESTAMP(6)", scale=6, nullable=False),
        [datetime(2000, 1, 1, 0, 0, 0, n) for n in range(4)],  # noqa: DTZ001
    ),
]


@pytest.mark.parametrize(("column", "values"), KEYS, ids=[c.data_type for c, _ in KEYS])
def test_keys_of_each_type_are_chunked_and_compared(
    server: OracleServer, column: Column, values: list[Any]
) -> None:
    second = Column("N", "NUMBER", precision=4, scale=0, nullable=False)
    server.create("K", [column, second, NAME], ("K", "N"))
    transaction = server.begin()
    for value in values:
        for number in (1, 2):
            transaction.insert("K", K=value, N=number, NAME="old")
    transaction.commit()
    seen: dict[tuple[Any, ...], str] = {}
    with Engine(options(tables=r"SHOP\.K", snapshotChunkRows=3), parallelism=1) as engine:
        offsets = engine.next()
        changed = server.begin()
        for value in values:
            changed.update("K", {"K": value, "N": 2}, NAME="new")
        changed.commit()
        server.begin().commit()
        while offsets is not None:
            snapshot, log = engine.read(*offsets)
            for row in rows_of(snapshot):
                assert (row["K"], row["N"]) not in seen
                seen[row["K"], row["N"]] = row["NAME"]
            for op, before, after, _ in changes_of(log):
                assert op == "u"
                assert seen[before["K"], before["N"]] == before["NAME"]
                seen[after["K"], after["N"]] = after["NAME"]
            offsets = engine.next()
    assert len(seen) == 2 * len(values)
    assert sorted(set(seen.values())) == ["new", "old"]


def test_a_snapshot_alone_reads_no_log(server: OracleServer) -> None:
    fill(server, 10)
    runs = server.runs
    with Engine(options(startingPosition="snapshot", snapshotChunkRows=4)) as engine:
        rows: list[dict[str, Any]] = []
        while (offsets := engine.next()) is not None:
            rows += rows_of(engine.read(*offsets)[0])
    assert sorted(r["ID"] for r in rows) == list(range(1, 11))
    assert server.runs == runs


def test_a_container_s_other_databases_are_left_out(server: OracleServer) -> None:
    server.settings |= {"cdb": "YES", "user": "C##TAILRACE"}
    fill(server, 1)
    for record in server.redo:
        record.con = 3
    with Engine(options()) as engine:
        held = Held(engine, ("ID",))
        drive(engine, held, server)
        fill(server, 1, first=50)
        for record in server.redo[-3:]:
            record.con = 3
        other = server.begin()
        other.insert("T", ID=77, NAME="of another database")
        other.commit()
        server.tables["T"].versions.pop()
        for record in server.redo[-3:]:
            record.con = 4
        server.begin().commit()
        drive(engine, held, server)
        assert sorted(held.state) == [(1,), (50,)]


FILE = r"""
source:
  type: oracle
  hostname: db.example.com
  database: FREEPDB1
  username: c##tailrace
  password: x
  tables: SHOP\..*
sink: {type: delta, path: /lake}
"""


def test_a_pipeline_file_names_the_service(server: OracleServer) -> None:
    source = parse_pipeline(FILE).source
    assert (source.dialect, source.host, source.port, source.database) == (
        "oracle",
        "db.example.com",
        1521,
        "FREEPDB1",
    )
    assert [f.severity for f in registry.check(source) if f.table] == ["ok"]


def test_changes_are_messages_of_debezium(server: OracleServer) -> None:
    fill(server, 1)
    with Engine(options()) as engine:
        drive(engine, Held(engine, ("ID",)), server)
        transaction = server.begin()
        transaction.update("T", {"ID": 1}, NAME="new")
        scn = server.scn
        commit = transaction.commit()
        server.begin().commit()
        _, (batch,) = engine.read(*engine.next())
    topics, block = Topics("app"), {"connector": "oracle", "database": "FREEPDB1"}
    for schemas in (False, True):
        made = DebeziumFormat(Envelopes(topics, **block), schemas).to_messages(batch, 0).to_pylist()
        value = json.loads(made[0]["value"])
        value = value["payload"] if schemas else value
        assert value["before"] == {"ID": 1, "NAME": "n1"}
        assert value["after"] == {"ID": 1, "NAME": "new"}
        source = value["source"]
        assert (source["connector"], source["db"], source["schema"], source["table"]) == (
            "oracle",
            "FREEPDB1",
            "SHOP",
            "T",
        )
        assert (source["scn"], source["commit_scn"], source["txId"]) == (
            str(scn),
            str(commit),
            transaction.xid,
        )
    (row,) = to_rows(batch).to_pylist()
    assert row["_position"] == f"scn:{scn}"


@pytest.mark.parametrize(
    "given",
    [
        {"url": "oracle://db.example"},
        {"startingPosition": "earliest"},
        {"startingPosition": "timestamp:2026-01-31T12:00:00Z"},
        {"endingPosition": "lsn:0/1"},
        {"slotName": "x"},
        {"serverId": 7},
        {"sshTunnel": "u@h"},
        {"database.initial.statements": "SET ROLE x"},
    ],
)
def test_options_that_oracle_does_not_have_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        options(**given)


def test_the_stream_ends_at_a_time(server: OracleServer) -> None:
    fill(server, 2)
    ends = int((server.now - datetime(1970, 1, 1)).total_seconds() * 1000) + 20_000  # noqa: DTZ001
    with Engine(options(endingPosition=f"timestamp:{ends}")) as engine:
        held = Held(engine, ("ID",))
        engine_batches = 0
        for number in range(60):
            fill(server, 1, first=100 + number)
            offsets = engine.next()
            if offsets is not None:
                held.take(*engine.read(*offsets))
                engine_batches += 1
    assert engine_batches
    inside = [v for _, _, v in server.tables["T"].versions]
    assert 2 < len(held.state) < len(inside)
