"""XA transactions: their rows count when they are committed, wherever and whenever they were prepared."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from tailrace.enumerator import enumerator, splits
from tailrace.enumerator.enumerator import Limits
from tailrace.errors import PositionLostError, PreflightError
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.reader.log import read_log
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tailrace.sources.mysql import source as mysql_source
from tailrace.sources.mysql.start.starting import position_in_file, starting_position
from tailrace.sources.mysql.xa import prepared as prepared_module
from tailrace.sources.mysql.xa.xa_visibility import EndingTransactions
from tailrace_dev.servers import start_mariadb, start_mysql
from tests.recovery.test_exactness import Blind
from tests.support.databases import group_commit_delay
from tests.support.engine import Engine, apply, changes_of, multiset, options_for, rows_of, whole_log
from tests.support.exactness import ROWS, BusyTable, now, wrong_batches
from tests.support.logged import end_of_log, purge
from tests.support.replica import SlowReplica
from tests.support.replication import catch_up, primary_of, promote, replica_of
from tests.support.switch import Switch
from tests.support.workload import SUBJECTS, fill
from tests.support.xa import KillingXaWriters, XaWriters, end, end_all, prepare


@pytest.fixture(params=["mysql", "mariadb"])
def any_server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def place(any_server, request):
    """A table `t` (id, v) in a database of its own; what is left prepared in the end is committed."""
    name = request.getfixturevalue("mariadb_database" if any_server.product == "mariadb" else "database")
    any_server.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)")
    yield f"{name}.t"
    end_all(any_server)


@contextmanager
def following(server, table, **given):
    """A stream that has begun at the log's end."""
    with Engine(options_for(server, table, **{"startingPosition": "latest", **given})) as engine:
        assert engine.next() is not None
        assert engine.next() is None, "the log is followed from now on"
        yield engine


def batch(engine, limits=None):
    """The next batch with changes: its offsets, and the changes; read again by another, it is the same."""
    deadline = time.monotonic() + 30
    while (found := engine.next(limits)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _, log = engine.read(*found)
    with Engine(engine.options) as other:
        assert multiset(other.read(*found)[1]) == multiset(log)
    return found, changes_of(log)


def ids(changes):
    return [(op, (after or before)["id"]) for op, before, after, _ in changes]


def listed(engine):
    return list(engine.offset.log.get("prepared", {}))


class Forgetful:
    """A session that does not know what is prepared and open where its ranges of the log begin."""

    def __init__(self, options):
        self._session = registry.session(options)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def changes(self, split):
        start = {name: value for name, value in split.start.items() if name != "prepared"}
        return self._session.changes(replace(split, start=start))


def verify_xa_run(server, database, subject=SUBJECTS[0], *, kind=XaWriters, **given):
    """`wrong_batches` with XA writers; batches must have begun between a prepare and its commit."""
    writers = []

    def make(*args, **more):
        writers.append(kind(*args, **more))
        return writers[0]

    try:
        wrong = wrong_batches(BusyTable(server, database, subject, make), **given)
        assert writers[0].ended > 5, "too few were ended by another connection than prepared them"
        return wrong
    finally:
        end_all(server)


@pytest.fixture
def late_commits(mysql):
    """What is logged is not visible for another 20 ms."""
    with group_commit_delay(mysql, 20_000, sync=1):
        yield


@pytest.mark.usefixtures("late_commits")
@pytest.mark.parametrize(
    "subject", [SUBJECTS[0], pytest.param(SUBJECTS[2], marks=pytest.mark.slow)], ids=lambda s: s.name
)
def test_every_batch_is_exact_while_xa_writers_write(mysql, database, subject):
    assert verify_xa_run(mysql, database, subject) == 0


def test_every_batch_of_mariadb_is_exact_while_xa_writers_write(mariadb, mariadb_database):
    assert verify_xa_run(mariadb, mariadb_database) == 0


def test_every_batch_of_mariadb_is_exact_while_a_semi_synchronous_replica_answers_late(
    mariadb, mariadb_database
):
    with SlowReplica(mariadb, 0.02):
        assert verify_xa_run(mariadb, mariadb_database) == 0


@pytest.mark.parametrize("waits", [True, False])
def test_snapshot_of_mariadb_waits_for_xa_commits_that_only_the_log_has(
    mariadb, mariadb_database, monkeypatch, waits
):
    """MariaDB commits XA transactions in the engine after the log, in no order with others.

    The replica that answers late makes that an age, for all that is logged then: tasks do not wait here.
    """
    if not waits:
        monkeypatch.setattr(EndingTransactions, "wait", lambda *_: None)
    table = f"{mariadb_database}.t"
    mariadb.execute(
        f"USE {mariadb_database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {table} SELECT seq, 0 FROM seq_1_to_40",
    )
    try:
        with Engine(options_for(mariadb, table, snapshotChunkRows=5), session=Blind) as engine:
            snapshot, log = engine.read(*engine.next())
            prepare(mariadb, "'late'", f"UPDATE {table} SET v = 1")
            with SlowReplica(mariadb, 1.0):
                before = end_of_log(mariadb)
                thread = threading.Thread(target=end, args=(mariadb, "COMMIT", "'late'"))
                thread.start()
                while (engine.plan.head().log["file"], engine.plan.head().log["pos"]) <= (
                    before.file,
                    before.pos,
                ):
                    engine.plan.latest(engine.offset, Limits(1, 1))
                    time.sleep(0.01)
                while engine.offset.tables:
                    if (found := engine.next()) is not None:
                        rows, changes = engine.read(*found)
                        snapshot, log = snapshot + rows, log + changes
                thread.join()
        target = {(row["id"],): row for row in rows_of(snapshot)}
        for op, _, after, _ in changes_of(log):
            assert op == "u"
            target[after["id"],] = after
        assert (target == now(mariadb, table, ("id",))) == waits
    finally:
        end_all(mariadb)


class Paged:
    """A session that does something after each page's SELECT."""

    def __init__(self, options, actions):
        self._session, self._actions = registry.session(options), iter(actions)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def pages(self, split):
        for page in self._session.pages(split):
            next(self._actions, lambda: None)()
            yield page


def test_what_one_page_saw_prepared_and_the_next_committed_is_put_back(any_server, place):
    any_server.execute(f"INSERT INTO {place} VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    options = options_for(any_server, place)
    source = registry.source(options)
    (captured,) = source.tables()
    change = f"UPDATE {place} SET v = v + 10"
    prepare(any_server, "'before'", f"{change} WHERE id = 4")
    split = SnapshotSplit(captured.schema, None, None, source.starting_position().to_json(), 1)
    actions = [
        lambda: prepare(any_server, "'within'", f"{change} WHERE id = 3"),
        lambda: end(any_server, "COMMIT", "'within'", "'before'"),
    ]
    session = Paged(options, actions)
    rows = rows_of(list(read_snapshot(split, session, exact=True)))
    session.close()
    assert [(row["id"], row["v"]) for row in rows] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert now(any_server, place, ("id",))[3,]["v"] == 13


@pytest.mark.slow
@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_chunks_read_in_pages_are_exact(request, monkeypatch, product):
    """What is prepared up to one page's end of the log may be committed before the next one's."""
    monkeypatch.setattr(splits, "PAGE_ROWS", 30)
    database = "database" if product == "mysql" else "mariadb_database"
    server, name = request.getfixturevalue(product), request.getfixturevalue(database)
    assert verify_xa_run(server, name) == 0


@pytest.mark.slow
def test_every_batch_is_exact_without_gtids():
    with start_mysql(options={"gtid_mode": "OFF"}) as server:
        server.execute("CREATE DATABASE d")
        assert verify_xa_run(server, "d") == 0


@pytest.mark.slow
@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_every_batch_is_exact_while_the_server_is_killed(product):
    """`stop` joins the killer: batches are planned and read while the server goes and comes back."""
    start = {"mysql": start_mysql, "mariadb": start_mariadb}[product]
    with start(options={"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}) as server:
        server.execute("CREATE DATABASE d")
        assert verify_xa_run(server, "d", kind=KillingXaWriters) == 0


def test_stream_begins_with_every_gtid_of_the_log_before_it(mysql, database):
    """An XA COMMIT is below the position of log_status before it is among its GTIDs: one time in three."""
    options = options_for(mysql, f"{database}.t", startingPosition="latest")
    mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
    stop = threading.Event()

    def write(key):
        with mysql.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for number in count():
                if stop.is_set():
                    return
                xid = f"'{database}','{key}',{number}"
                cursor.execute(f"XA START {xid}")
                cursor.execute(
                    f"INSERT INTO {database}.t VALUES ({key}, 0) ON DUPLICATE KEY UPDATE v = v + 1"
                )
                for step in ("END", "PREPARE", "COMMIT"):
                    cursor.execute(f"XA {step} {xid}")

    writers = [threading.Thread(target=write, args=(key,)) for key in range(8)]
    for writer in writers:
        writer.start()
    try:
        found = []
        for _ in range(10):
            mysql.execute("FLUSH BINARY LOGS")
            found.append(starting_position(options))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert [position_in_file(options, p.file, p.pos).gtids for p in found] == [p.gtids for p in found]


@pytest.mark.slow
def test_without_what_is_prepared_batches_are_wrong(mysql, database):
    """The test of the test. A run may have the luck that no batch begins where it matters."""
    for subject in SUBJECTS * 3:
        mysql.execute(f"DROP TABLE IF EXISTS {database}.{subject.name}")
        if verify_xa_run(mysql, database, subject, session=Forgetful):
            return
    pytest.fail("batches are exact without what is prepared")


def test_rows_come_with_the_commit_and_not_with_the_prepare(any_server, place):
    with following(any_server, place) as engine:
        prepare(any_server, "'a','b',7", f"INSERT INTO {place} VALUES (1, 1), (2, 2)")
        any_server.execute(f"INSERT INTO {place} VALUES (3, 3)")
        _, changes = batch(engine)
        assert ids(changes) == [("c", 3)]
        assert listed(engine) == ["X'61',X'62',7"]
        end(any_server, "COMMIT", "'a','b',7")
        any_server.execute(f"INSERT INTO {place} VALUES (4, 4)")
        _, changes = batch(engine)
        while len(changes) < 3:
            changes += batch(engine)[1]
        assert ids(changes) == [("c", 1), ("c", 2), ("c", 4)]
        assert [seq for *_, seq in changes] == sorted({seq for *_, seq in changes})
        assert "prepared" not in engine.offset.log


def test_rows_that_are_rolled_back_never_come(any_server, place):
    with following(any_server, place) as engine:
        prepare(any_server, "'a'", f"INSERT INTO {place} VALUES (1, 1)")
        any_server.execute(f"INSERT INTO {place} VALUES (2, 2)")
        assert ids(batch(engine)[1]) == [("c", 2)]
        end(any_server, "ROLLBACK", "'a'")
        any_server.execute(f"INSERT INTO {place} VALUES (1, 3)")
        assert ids(batch(engine)[1]) == [("c", 1)]
        assert listed(engine) == []


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("held", [True, False], ids=["held", "read again"])
def test_commit_whose_prepare_is_files_back_brings_its_rows(any_server, place, monkeypatch, files, held):
    if not held:
        monkeypatch.setattr(mysql_source, "INLINE_BYTES", -1)
    any_server.execute(f"INSERT INTO {place} VALUES (7, 0), (8, 0), (9, 0)")
    with following(any_server, place) as engine:
        prepare(
            any_server,
            "'far'",
            f"INSERT INTO {place} VALUES (1, 1), (2, 2)",
            f"UPDATE {place} SET v = 5 WHERE id = 7",
            f"UPDATE {place} SET id = 80 WHERE id = 8",
            f"DELETE FROM {place} WHERE id = 9",
        )
        any_server.execute(*["FLUSH BINARY LOGS"] * files, f"INSERT INTO {place} VALUES (3, 3)")
        first, changes = batch(engine)
        end(any_server, "COMMIT", "'far'")
        any_server.execute(f"INSERT INTO {place} VALUES (4, 4)")
        while ("c", 4) not in ids(changes):
            changes += batch(engine)[1]
        expected = [("c", 3), ("c", 1), ("c", 2), ("u", 7), ("d", 8), ("c", 80), ("d", 9), ("c", 4)]
        assert ids(changes) == expected
        # in one range, prepared and committed within it, they have the same positions
        assert whole_log(engine.options, first[0].log, engine.offset.log) == changes


#: What a session sets, and what its XA transaction then does to t (id, v), w (id, doc, big) and to m, which
#: is MyISAM.
FORMS = {
    "plain": ([], ["INSERT INTO {d}.w VALUES (2, '{{}}', 'b')"]),
    "savepoint": ([], ["SAVEPOINT s", "DELETE FROM {d}.w", "ROLLBACK TO s", "DELETE FROM {d}.t"]),
    "mixed engines": ([], ["INSERT INTO {d}.m VALUES (1)", "UPDATE {d}.t SET v = 9"]),
    "mixed engines, the other way": ([], ["UPDATE {d}.t SET v = 9", "INSERT INTO {d}.m VALUES (1)"]),
    "one statement for both": ([], ["INSERT INTO {d}.both_ VALUES (1)"]),
    "large": ([], [f"UPDATE {{d}}.w SET big = REPEAT('{letter}', 12 << 20)" for letter in "xy"]),
    "many rows": (
        [],
        [
            """INSERT INTO {d}.t WITH RECURSIVE n AS
            (SELECT 10 i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, 1 FROM n""",
            "UPDATE {d}.t SET v = 2",
        ],
    ),
    "compressed": (["SET binlog_transaction_compression = ON"], ["UPDATE {d}.t SET v = 3, id = id + 5"]),
    "large and compressed": (
        ["SET binlog_transaction_compression = ON"],
        ["UPDATE {d}.w SET big = REPEAT('x', 9 << 20)", "DELETE FROM {d}.t"],
    ),
    "parts of JSON": (
        ["SET binlog_row_value_options = PARTIAL_JSON"],
        ["UPDATE {d}.w SET doc = JSON_SET(doc, '$.a', 7)"],
    ),
    "tagged": (["SET gtid_next = 'AUTOMATIC:tailrace'"], ["UPDATE {d}.t SET v = 4"]),
    "packed": (
        ["SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10"],
        ["INSERT INTO {d}.t SELECT seq, 1 FROM seq_10_to_300", "UPDATE {d}.t SET v = 5, id = id + 1000"],
    ),
}
ONLY_MYSQL = {"compressed", "large and compressed", "parts of JSON", "tagged"}
ONLY_MARIADB = {"packed", "mixed engines, the other way", "one statement for both"}
STEPS = [
    *((form, "COMMIT") for form in FORMS),
    *((form, "ONE PHASE") for form in ("plain", "large", "compressed", "large and compressed")),
]


@pytest.mark.parametrize(("form", "step"), STEPS)
def test_every_form_of_an_xa_transaction_is_decoded(any_server, place, form, step):
    mariadb = any_server.product == "mariadb"
    if form in (ONLY_MYSQL if mariadb else ONLY_MARIADB):
        pytest.skip("the other product's")
    database = place.partition(".")[0]
    any_server.execute(
        f"USE {database}",
        "CREATE TABLE w (id INT PRIMARY KEY, doc JSON, big LONGTEXT)",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE both_ (id INT PRIMARY KEY)",
        "CREATE TRIGGER too AFTER INSERT ON both_ FOR EACH ROW INSERT INTO m VALUES (NEW.id)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        f'INSERT INTO w VALUES (1, \'{{"a": 1, "b": "{"y" * 300}"}}\', \'a\')',
    )
    tables = ("t", "w", "m", "both_")
    target = {name: now(any_server, f"{database}.{name}", ("id",)) for name in tables}
    first, statements = FORMS[form]
    statements = [statement.format(d=database) for statement in statements]
    with following(any_server, f"{database}[.].*") as engine:
        if step == "COMMIT":
            prepare(any_server, "'x','y'", *statements, first=(f"USE {database}", *first))
            if form in ("large", "compressed"):
                any_server.execute("FLUSH BINARY LOGS")
            end(any_server, "COMMIT", "'x','y'")
        else:
            any_server.execute(
                f"USE {database}",
                *first,
                "XA START 'x'",
                *statements,
                "XA END 'x'",
                "XA COMMIT 'x' ONE PHASE",
            )
        if form == "packed":
            any_server.execute("SET GLOBAL log_bin_compress = OFF")
        expected = {name: now(any_server, f"{database}.{name}", ("id",)) for name in tables}
        deadline = time.monotonic() + 60
        seqs = []
        while target != expected:
            assert time.monotonic() < deadline
            if (found := engine.next()) is not None:
                log = engine.read(*found)[1]
                for piece in log:
                    seqs += piece.origin.column("seq").to_pylist()
                    apply(target[piece.table.id.table], changes_of([piece]), ("id",))
                with Engine(engine.options) as other:
                    assert multiset(other.read(*found)[1]) == multiset(log)
        assert len(set(seqs)) == len(seqs)
        assert listed(engine) == []


@pytest.mark.parametrize("partitioner", ["forward", "hash"])
def test_slices_of_a_backlog_hold_each_change_once(mysql, database, monkeypatch, partitioner):
    monkeypatch.setattr(mysql_source, "INLINE_BYTES", -1)
    table = f"{database}.{SUBJECTS[0].name}"
    fill(mysql, table, SUBJECTS[0], ROWS)
    try:
        with following(mysql, table, logParallelism=2, partitioner=partitioner) as engine:
            start = engine.offset
            source = registry.source(engine.options)
            prepare(mysql, "'held'", f"INSERT INTO {table} VALUES (1000000, 0, '')")
            with XaWriters(mysql, table, SUBJECTS[0], count=4, keys=2 * ROWS):
                while source.log_end().pos < start.log["pos"] + 200_000:
                    time.sleep(0.05)
            while engine.plan.head().log["pos"] < source.log_end().pos:
                time.sleep(0.05)
            assert engine.next(Limits()) is not None
            splits = engine.plan.splits(start, engine.offset)
            assert len(splits) == 2
            assert partitioner == "hash" or splits[1].start.get("prepared"), "one is open where they meet"
            parts = engine.read(start, engine.offset)[1]
            everything = whole_log(engine.options, start.log, engine.offset.log)
            assert sorted(map(repr, changes_of(parts))) == sorted(map(repr, everything))
    finally:
        end_all(mysql)


def test_prepared_transactions_survive_a_restart_of_the_server():
    with start_mysql(options={"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}) as server:

        def kill():
            server.kill()
            server.start()

        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        with following(server, "d.t") as engine:
            for number, restart in enumerate((server.restart, kill)):
                prepare(server, f"'r{number}'", f"INSERT INTO d.t VALUES ({10 * number + 1}, 1)")
                prepare(server, f"'q{number}'", f"INSERT INTO d.t VALUES ({10 * number + 2}, 1)")
                server.execute(f"INSERT INTO d.t VALUES ({10 * number + 3}, 1)")
                assert ids(batch(engine)[1]) == [("c", 10 * number + 3)]
                restart()
                end(server, "COMMIT", f"'r{number}'")
                end(server, "ROLLBACK", f"'q{number}'")
                server.execute(f"INSERT INTO d.t VALUES ({10 * number + 4}, 1)")
                changes = batch(engine)[1]
                while len(changes) < 2:
                    changes += batch(engine)[1]
                assert ids(changes) == [("c", 10 * number + 1), ("c", 10 * number + 4)]


@pytest.mark.parametrize("position", ["initial", "latest", "gtid"])
def test_stream_begins_with_what_is_prepared_at_its_start(any_server, place, position):
    any_server.execute(f"INSERT INTO {place} VALUES (5, 5)")
    prepare(any_server, "'old'", f"INSERT INTO {place} VALUES (1, 1), (2, 2)")
    prepare(any_server, "'gone'", f"INSERT INTO {place} VALUES (3, 3)")
    any_server.execute("FLUSH BINARY LOGS")
    given = position
    if position == "gtid":
        given = "gtid:" + registry.source(options_for(any_server, place)).log_end().gtids
        end(any_server, "ROLLBACK", "'gone'")
        end(any_server, "COMMIT", "'old'")
    with Engine(options_for(any_server, place, startingPosition=given)) as engine:
        found = engine.next()
        assert listed(engine) == ["X'6f6c64',X'',1", "X'676f6e65',X'',1"]
        if position != "gtid":
            end(any_server, "ROLLBACK", "'gone'")
            end(any_server, "COMMIT", "'old'")
        any_server.execute(f"INSERT INTO {place} VALUES (4, 4)")
        expected = now(any_server, place, ("id",))
        assert expected.keys() == {(1,), (2,), (4,), (5,)}
        target = {} if position == "initial" else {(5,): expected[5,]}
        deadline = time.monotonic() + 30
        while target != expected:
            assert time.monotonic() < deadline
            if found is not None:
                snapshot, log = engine.read(*found)
                apply(target, changes_of(log), ("id",))
                rows = {(row["id"],): row for row in rows_of(snapshot)}
                assert not rows.keys() & target.keys()
                target.update(rows)
            found = engine.next()


def test_prepare_that_was_purged_before_the_start_is_refused_by_name(any_server, place, monkeypatch):
    monkeypatch.setattr(prepared_module, "_WAIT_S", 0.5)
    prepare(any_server, "'lost'", f"INSERT INTO {place} VALUES (1, 1)")
    any_server.execute("FLUSH BINARY LOGS")
    purge(any_server)
    with pytest.raises(PositionLostError, match="X'6c6f7374',X'',1") as refused:
        registry.source(options_for(any_server, place)).starting_position()
    assert "XA ROLLBACK X'6c6f7374',X'',1" in refused.value.hint


def test_prepare_that_was_purged_before_its_commit_is_a_definite_error(any_server, place):
    with following(any_server, place) as engine:
        prepare(any_server, "'lost'", f"INSERT INTO {place} VALUES (1, 1)")
        any_server.execute("FLUSH BINARY LOGS", f"INSERT INTO {place} VALUES (2, 2)")
        batch(engine)
        offset = engine.offset
    purge(any_server)
    end(any_server, "COMMIT", "'lost'")
    with Engine(engine.options) as again:  # its driver holds none of the bytes
        again.offset = offset
        deadline = time.monotonic() + 30
        while (found := again.next()) is None:
            assert time.monotonic() < deadline
        with pytest.raises(PositionLostError, match="X'6c6f7374',X'',1"):
            again.read(*found)


def test_read_only_transactions_that_are_prepared_are_waited_for(mysql, database, monkeypatch):
    monkeypatch.setattr(prepared_module, "_WAIT_S", 0.3)
    table = f"{database}.t"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    prepare(mysql, "'reads'", f"SELECT * FROM {table}")
    source = registry.source(options_for(mysql, table))
    with pytest.raises(PositionLostError, match="X'7265616473'"):
        source.starting_position()
    end(mysql, "COMMIT", "'reads'")
    assert source.starting_position().prepared == ()


def test_who_may_not_see_prepared_transactions_is_told_the_grant(mysql, database):
    table, user = f"{database}.t", f"u_{database[2:14]}"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"CREATE USER {user} IDENTIFIED BY '{mysql.password}'",
        f"GRANT SELECT ON {table} TO {user}",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        "XA START 'used'",
        "XA END 'used'",
    )
    try:
        source = registry.source(options_for(mysql, table, user=user))
        with pytest.raises(PreflightError) as refused:
            source.starting_position()
        mysql.execute(refused.value.hint)
        assert source.starting_position().prepared == ()
    finally:
        mysql.execute(f"DROP USER {user}")


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_failover_finds_what_is_prepared_in_the_other_servers_log(product):
    table = "shop.t"
    with primary_of(product) as primary:
        primary.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
        with (
            replica_of(primary) as other,
            Switch(primary) as address,
            following(address, table) as engine,
        ):
            prepare(primary, "'f'", f"INSERT INTO {table} VALUES (1, 1)")
            prepare(primary, "'g'", f"INSERT INTO {table} VALUES (2, 2)")
            primary.execute(f"INSERT INTO {table} VALUES (3, 3)")
            _, changes = batch(engine)
            catch_up(other, primary)
            promote(other)
            primary.stop()
            address.point(other)
            end(other, "COMMIT", "'f'")
            end(other, "ROLLBACK", "'g'")
            other.execute(f"INSERT INTO {table} VALUES (4, 4)")
            while ("c", 4) not in ids(changes):
                changes += batch(engine)[1]
            assert ids(changes) == [("c", 3), ("c", 1), ("c", 4)]
            assert listed(engine) == []


def test_rows_count_for_the_limit_where_they_are_committed(mysql, database):
    table = f"{database}.t"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    with following(mysql, table, maxRowsPerTrigger=5) as engine:
        for first in (10, 20, 30):
            rows = ", ".join(f"({first + i}, 0)" for i in range(3))
            prepare(mysql, f"'{first}'", f"INSERT INTO {table} VALUES {rows}")
        mysql.execute(*(f"INSERT INTO {table} VALUES ({i}, 0)" for i in range(5)))
        while engine.plan.head().log["pos"] < end_of_log(mysql).pos:
            time.sleep(0.01)
        sizes = [len(batch(engine, Limits(5, None))[1])]
        end(mysql, "COMMIT", "'20'", "'10'", "'30'")
        mysql.execute(f"INSERT INTO {table} VALUES (6, 0)")
        while engine.plan.head().log["pos"] < end_of_log(mysql).pos:
            time.sleep(0.01)
        while sum(sizes) < 15:
            sizes.append(len(batch(engine, Limits(5, None))[1]))
    assert sizes == [5, 3, 3, 4]


def test_commit_behind_a_prepare_larger_than_a_batch_is_not_waited_for(mysql, database):
    table = f"{database}.t"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v LONGTEXT)")
    with following(mysql, table) as engine:
        prepare(mysql, "'big'", f"INSERT INTO {table} VALUES (1, REPEAT('x', 3 << 20))")
        end(mysql, "COMMIT", "'big'")
        begun = time.monotonic()
        _, changes = batch(engine, Limits(None, 1 << 20))
        while not changes:
            changes = batch(engine, Limits(None, 1 << 20))[1]
    assert ids(changes) == [("c", 1)]
    assert time.monotonic() < begun + enumerator.QUIET_ADVANCE_S


def test_list_is_bounded_by_what_is_open(mysql, database):
    table = f"{database}.t"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    try:
        with following(mysql, table) as engine:
            start = engine.offset
            for number in range(20):
                prepare(mysql, f"'{number}'", f"INSERT INTO {table} VALUES ({number}, 1)")
            end(mysql, "COMMIT", *(f"'{number}'" for number in range(0, 20, 2)))
            mysql.execute(f"INSERT INTO {table} VALUES (1000, 1)")
            target = []
            while ("c", 1000) not in target:
                target += ids(batch(engine)[1])
            assert target == [*(("c", number) for number in range(0, 20, 2)), ("c", 1000)]
            assert len(listed(engine)) == 10
            assert len(str(engine.offset.to_json())) < 10 * 80 + 1000
            session = registry.session(engine.options)
            assert len(changes_of(list(read_log(LogSplit(start.log, engine.offset.log), session)))) == 11
            session.close()
    finally:
        end_all(mysql)
