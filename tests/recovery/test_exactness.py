"""Every batch is exact under load: snapshot rows are those at P(n), changes come once, replays are equal.

Over every source; what only MariaDB has is tested in `test_mariadb_exactness`, batches of PostgreSQL that are
read twice in `test_postgres_replay`.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from tailrace.sources import pausing, registry
from tailrace_dev.servers import start_postgres
from tests.support import faults, postgres
from tests.support.databases import fresh_database, group_commit_delay, unacknowledged
from tests.support.engine import Engine, changes_of, multiset, options_for, rows_of
from tests.support.exactness import BusyTable, PostgresTable, wrong_batches
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS

#: Batches of PostgreSQL are small, and there are many.
SMALL = {"chunk_rows": 40, "min_batches": 12, "least": 4}
#: How a busy table is followed, by product.
FOLLOWED = {
    "mysql": {"fault": partial(group_commit_delay, delay_us=20_000)},
    "mariadb": {"fault": partial(group_commit_delay, delay_us=20_000)},
    "postgres": SMALL,
}
#: Product, kind of table, and what else is said of the table. A kind has one identity in turn, the other one
#: as a slow test. MariaDB's rows are read by MySQL's code: it has one kind.
BUSY = (
    *(("mysql", subject, {}, True) for subject in SUBJECTS),
    *(("mariadb", subject, {}, subject is SUBJECTS[0]) for subject in SUBJECTS),
    *(
        ("postgres", subject, {"identity": name}, number % 2 == turn)
        for number, subject in enumerate(postgres.SUBJECTS)
        for turn, name in enumerate(("DEFAULT", "FULL"))
    ),
)
FEW = {"chunk_rows": 200, "min_batches": 6}
#: What keeps a commit that is in the log from being visible, and what breaks off what the stream does.
FAULTS = {
    "mysql-commits-wait": ("mysql", partial(group_commit_delay, delay_us=1_000_000, sync=0), FEW),
    "mysql-synced-commits-wait": ("mysql", partial(group_commit_delay, delay_us=1_000_000, sync=1), FEW),
    "mariadb-commits-wait": ("mariadb", partial(group_commit_delay, delay_us=200_000), FEW),
    "postgres-late-standby": ("postgres", faults.late_standby, {**SMALL, "min_batches": 20}),
    "postgres-lost-connections": ("postgres", faults.lost_connections, {**SMALL, "min_batches": 20}),
}


class Blind:
    """A session that does not wait for binlogged transactions to become visible."""

    def __init__(self, options):
        self._session = registry.session(options)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def wait_visible(self, position):
        pass


class Slow:
    """A session on a busy server: a page is many short statements, with writes between them."""

    def __init__(self, options):
        self._session = registry.session(options)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def pages(self, split):
        return self._session.pages(replace(split, time_share=0.2))


@pytest.fixture
def few_rows(monkeypatch):
    """A statement of a reader that pauses has a few rows, so that a small table has many of them."""
    monkeypatch.setattr(pausing, "FIRST_ROWS", 3)
    monkeypatch.setattr(pausing, "MOST_ROWS", 7)


@pytest.fixture
def table_of(request):
    """Makes a table in a fresh database of a product's shared server."""
    with ExitStack() as places:

        def make(product, subject=None, **given):
            server = request.getfixturevalue(product)
            if product == "postgres":
                place = request.getfixturevalue("postgres_database")
                return PostgresTable(server, place, subject or postgres.SUBJECTS[0], **given)
            place = places.enter_context(fresh_database(server))
            return BusyTable(server, place, subject or SUBJECTS[0], **given)

        yield make


@pytest.mark.parametrize(
    ("product", "subject", "given"),
    [
        pytest.param(
            product,
            subject,
            given,
            id="-".join([product, subject.name, *given.values()]),
            marks=[] if is_due else [pytest.mark.slow],
        )
        for product, subject, given, is_due in BUSY
    ],
)
def test_every_batch_is_exact_while_others_write(table_of, product, subject, given):
    assert wrong_batches(table_of(product, subject, **given), **FOLLOWED[product]) == 0


@pytest.mark.parametrize(
    ("product", "fault", "followed"),
    [
        pytest.param(*fault, id=name, marks=[pytest.mark.slow] if name == "mysql-commits-wait" else [])
        for name, fault in FAULTS.items()
    ],
)
def test_every_batch_is_exact_while_the_server_is_disturbed(table_of, product, fault, followed):
    assert wrong_batches(table_of(product), fault=fault, **followed) == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["15", "16"])
def test_every_batch_is_exact_on_older_servers_of_postgres(version):
    with start_postgres(version) as server:
        server.execute("CREATE DATABASE older")
        table = PostgresTable(server, "older", postgres.SUBJECTS[2])
        assert wrong_batches(table, fault=faults.lost_connections, **SMALL) == 0


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(
    ("product", "subject"),
    [
        ("mysql", SUBJECTS[1]),
        ("postgres", postgres.SUBJECTS[1]),
        *(pytest.param("mysql", subject, marks=pytest.mark.slow) for subject in SUBJECTS[2:]),
        *(pytest.param("mariadb", subject, marks=pytest.mark.slow) for subject in SUBJECTS),
        *(pytest.param("postgres", subject, marks=pytest.mark.slow) for subject in postgres.SUBJECTS[2:]),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_batch_is_exact_while_the_reader_pauses_between_short_statements(table_of, product, subject):
    followed = SMALL if product == "postgres" else {"chunk_rows": 200, "min_batches": 6}
    assert wrong_batches(table_of(product, subject), session=Slow, **followed) == 0


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow), "postgres"])
def test_batch_read_slowly_and_again_at_full_speed_gives_the_same_rows(table_of, product):
    table = table_of(product)
    table.fill(450)  # read three times, some rows at a time
    with Engine(table.options(snapshotChunkRows=75)) as engine, table.writing(count=4):
        while engine.offset.is_new or engine.offset.tables:
            batch = engine.next()
            if batch is None:
                continue
            found = []
            for engine.session in (Slow, registry.session, Slow):
                found.append(multiset([b for part in engine.read(*batch) for b in part]))
            assert found[0] == found[1] == found[2]


def test_without_the_wait_for_visibility_batches_are_wrong(mysql, database):
    """What the wait prevents, with a commit that stays in the log unseen for as long as the test wants."""
    table, last = f"{database}.t", 40
    values = ", ".join(f"({n}, 0)" for n in range(1, last + 1))
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {values}")
    options = options_for(mysql, table, snapshotChunkRows=2)
    with Engine(options, parallelism=1, session=Blind) as engine:
        for _ in range(2):  # the second batch follows the log
            engine.read(*wait_until(engine.next, 120, "a batch"))
        start, rows = engine.offset.log, {}
        writer = threading.Thread(target=mysql.execute, args=(f"UPDATE {table} SET v = 1 WHERE id = {last}",))
        with unacknowledged(mysql):
            writer.start()
            wait_until(lambda: engine.plan.head().log != start, 120, "the update in the log")
            while last not in rows:
                batch = wait_until(engine.next, 120, "a batch")
                rows = {row["id"]: row["v"] for row in rows_of(engine.read(*batch)[0])}
        writer.join()
    assert rows[last] == 0, "the row is not as of the batch's position"
    with Engine(options) as engine:
        rows = {row["id"]: row["v"] for row in rows_of(engine.read(*batch)[0])}
    assert rows[last] == 1


@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_batch_read_twice_with_writes_between_gives_the_same_rows(table_of, product):
    table = table_of(product)
    table.fill()
    options = table.options(snapshotChunkRows=150)
    with Engine(options) as engine, table.writing(count=4):
        batches = []
        while engine.offset.is_new or engine.offset.tables:
            batch = engine.next()
            if batch is not None:
                batches.append((batch, multiset([b for part in engine.read(*batch) for b in part])))
        time.sleep(0.5)  # writes between: the point of the test, not a wait for something
        for batch, first in batches:
            with Engine(options) as other:  # a new process knows nothing but the offsets
                assert multiset([b for part in other.read(*batch) for b in part]) == first


@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_at_least_once_ends_in_the_right_state_though_rows_may_come_again(table_of, product):
    table = table_of(product)
    table.fill()
    target = {}
    with Engine(table.options(snapshotChunkRows=150, delivery="at-least-once")) as engine:
        with table.writing(count=4):
            while engine.offset.is_new or engine.offset.tables:
                follow(engine, target)
        engine.plan.hold()
        while follow(engine, target):
            pass
    assert target == table.now()


def follow(engine, target):
    """Apply the next batch as a keyed sink does, log first, then rows; whether there was one."""
    batch = engine.next()
    if batch is None:
        return False
    snapshot, log = engine.read(*batch)
    for op, before, after, _ in changes_of(log):
        if op == "d":
            target.pop((before["id"],), None)
        else:
            target[after["id"],] = after
    target.update({(r["id"],): r for r in rows_of(snapshot)})
    return True
