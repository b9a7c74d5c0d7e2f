"""`tailrace restore` of a PostgreSQL table beside writers: at any time exactly what was committed then.

TAILRACE_SEED=1234 runs that seed.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress

import pytest
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.secret import Secret
from tailrace.errors import SourceError, TransientSourceError
from tailrace.model.table import TableId
from tailrace.pipeline.postgres_restore import restored
from tailrace.repetition import repeatedly
from tailrace.sources.archive.writing import ArchivingLimits
from tailrace.sources.postgres.archiving import builder, sightings
from tailrace.sources.postgres.archiving.archiver import WalArchiver
from tailrace.sources.postgres.archiving.keeping import keep_base
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication import incoming
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace_dev.servers.postgres import start_postgres
from tests.support.archives import archive_wal_to_end
from tests.support.faults import late_standby
from tests.support.kills import brought_back
from tests.support.postgres import options_for
from tests.support.postgres_history import History
from tests.support.wait import wait_until

KEY = "11" * 32
TABLE = TableId("public", "t")
WRITERS, BASES, REWRITES, TIMES = 4, 3, 5, 12
#: Changes between two bases.
CHANGES = 600
#: Duplicate key, deadlock.
EXPECTED = frozenset({"23505", "40P01"})
PUBLICATIONS = {
    "table": "FOR TABLE t, other",
    "all-tables": "FOR ALL TABLES",
    "schema": "FOR TABLES IN SCHEMA public",
}
SEED = int(os.environ.get("TAILRACE_SEED", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def statements(draw: random.Random, *, truncates: bool) -> list[str]:
    """The statements of a transaction at random."""
    low, number = draw.randrange(200), draw.randrange(1000)
    between = f"WHERE id BETWEEN {low} AND {low + draw.randrange(6)}"
    if truncates and draw.random() < 0.02:
        filled = f"INSERT INTO t SELECT n, 0, {number} FROM generate_series(0, 199) n"
        return draw.choice([["TRUNCATE t"], [f"DELETE FROM t {between}", "TRUNCATE t, other", filled]])
    size = draw.choice([5, 5000])
    new, again = f"{low}, 0, {number}, 'new'", "ON CONFLICT"
    one = [
        f"UPDATE t SET a = a + {number}, m = 'sad' {between}",
        f"UPDATE t SET large = repeat('{number},', {draw.choice([10, 1500])}) {between}",
        f"UPDATE t SET large = NULL {between}",
        f"UPDATE t SET part = part + {draw.choice([1, 10])}, b = 'moved' {between}",
        f"UPDATE t SET id = {draw.randrange(200)} WHERE id = {low} AND part = 0",
        f"DELETE FROM t {between}",
        f"INSERT INTO t VALUES ({new}, repeat('n', {size})) {again} (id, part) DO UPDATE SET c = 7",
        f"INSERT INTO t (id, part) SELECT n, 1 FROM generate_series({low}, {low + 9}) n {again} DO NOTHING",
    ]
    chosen = [draw.choice(one) for _ in range(draw.choice([1, 1, 2, 4]))]
    if draw.random() < 0.2:
        chosen += ["SAVEPOINT s", draw.choice(one), "ROLLBACK TO s", draw.choice(one)]
    if draw.random() < 0.3:
        chosen.append("INSERT INTO other (d) VALUES ('x')")
    return chosen


class Busy:
    """A table with its history, written to at once, and an archive of its log."""

    def __init__(self, server, database, where, kind, identity="DEFAULT") -> None:
        self.server, self.database, self._truncates = server, database, kind == "table"
        self.options = options_for(server, database, r"public\..*", archive=where, archiveKey=KEY)
        self.run(
            "CREATE TYPE mood AS ENUM ('sad', 'glad')",
            "CREATE TABLE t (id int, part int, a int, b text, large text, c numeric(10, 2), m mood, "
            "at timestamptz DEFAULT clock_timestamp(), PRIMARY KEY (id, part))",
            "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
            f"ALTER TABLE t REPLICA IDENTITY {identity}",
            "CREATE TABLE other (id serial PRIMARY KEY, d text)",
            f"CREATE PUBLICATION tailrace {PUBLICATIONS[kind]} WITH (publish_via_partition_root = true)",
        )
        self.history = History(server, database, "t", ("id", "part"), "tailrace")
        self.run(
            "INSERT INTO t SELECT n, n % 3, n, 'row', repeat(n::text || '-', 1000 + n), n / 4.0, 'glad' "
            "FROM generate_series(0, 199) n"
        )
        self.draw = random.Random(SEED)

    def run(self, *given: str):
        return self.server.execute(*given, database=self.database)

    def moment(self) -> int:
        """The server's time, microseconds since 1970."""
        return int(self.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8")[0][0])

    @contextmanager
    def writing(self, *, survives: bool = False) -> Iterator[None]:
        """Write from several connections at once.

        Args:
            survives: whether the server may be gone for a while.
        """
        stop = threading.Event()

        def write(seed: int) -> None:
            draw = random.Random(seed)
            while not stop.is_set():
                try:
                    self._write(draw, stop)
                except (DatabaseError, InterfaceError, OSError):
                    if not survives:
                        raise
                    stop.wait(0.2)

        with ThreadPoolExecutor(WRITERS) as threads:
            futures = [threads.submit(write, self.draw.randrange(10**6)) for _ in range(WRITERS)]
            try:
                yield
            finally:
                stop.set()
        for future in futures:
            future.result()

    def _write(self, draw: random.Random, stop: threading.Event) -> None:
        connection = self.server.connect(database=self.database, autocommit=False)
        with closing(connection), closing(connection.cursor()) as cursor:
            while not stop.wait(0.01):
                try:
                    for statement in statements(draw, truncates=self._truncates):
                        cursor.execute(statement)
                    if draw.random() < 0.1:
                        connection.rollback()
                    else:
                        connection.commit()
                except DatabaseError as error:
                    if error.args[0].get("C") not in EXPECTED:
                        raise
                    connection.rollback()

    @contextmanager
    def archiving(self) -> Iterator[None]:
        """Archive the log meanwhile."""
        stop = threading.Event()
        archive = WalArchive(self.options.archive, Secret(KEY), create=True)
        limits = ArchivingLimits(segment_bytes=100_000, seconds=1)
        with archive.store.locked(), ThreadPoolExecutor(1) as threads:
            archiver = threads.submit(WalArchiver(self.options, archive, limits).run, stop)
            slot = f"FROM pg_replication_slots WHERE slot_name = '{archive.slot}' AND active"
            self.server.wait_until(f"SELECT count(*) {slot}", bool, timeout_s=60)
            try:
                yield
            finally:
                stop.set()
            archiver.result()

    def grow(self) -> None:
        """Wait for changes."""
        before = self.history.size()
        wait_until(lambda: self.history.size() > before + CHANGES, 120, "the table to be written to")

    def base(self) -> PostgresPosition:
        """Keep a base, again if the table is rewritten meanwhile."""

        def keep() -> PostgresPosition | None:
            with suppress(TransientSourceError):
                base = keep_base(self.options, WalArchive(self.options.archive, Secret(KEY)))
                return PostgresPosition.from_json(base.position)
            return None

        return wait_until(keep, 120, "a base")

    def found(self, at_us: int):
        """The rows as of a time, and their position."""
        result = restored(self.options, TABLE, at_us)
        rows = [row for part in result.rows for row in part.to_pylist()]
        keyed = {(row["id"], row["part"]): row for row in rows}
        assert len(keyed) == len(rows)
        return keyed, result.position.lsn


def compare(busy: Busy, results: dict[int, tuple[dict, int]]) -> None:
    """Check what was restored as of times: its position, and every row."""
    commits, changes = busy.history.commits(), busy.history.changes()
    sizes = set()
    for at_us, (rows, lsn) in results.items():
        before = next(n for n, commit in enumerate(commits) if commit.at_us >= at_us)
        assert lsn == commits[before].lsn
        expected = busy.history.rows(changes, commits[:before])
        assert rows == expected, f"as of {at_us}"
        sizes.add(len(rows))
    assert len(sizes) > 1, "the times have different rows"


@pytest.fixture
def _small_pieces(monkeypatch):
    monkeypatch.setattr(incoming, "_RECEIVE", 20_000)
    monkeypatch.setattr(builder, "_KEPT_BYTES", 50_000)


@pytest.fixture
def make(tmp_path) -> Callable[..., Busy]:
    return lambda server, database, *given: Busy(server, database, tmp_path / "archive", *given)


def times(busy: Busy, since_us: int) -> list[int]:
    """Times at random, and the very times of commits and just behind."""
    until = busy.moment()
    stamps = [commit.at_us for commit in busy.history.commits() if since_us < commit.at_us < until]
    chosen = [busy.draw.randrange(since_us, until) for _ in range(TIMES)]
    for stamp in busy.draw.sample(stamps, TIMES):
        chosen += [stamp, stamp + 1]
    # commits whose times are not in their order
    chosen += [later for earlier, later in zip(stamps[1:], stamps, strict=False) if earlier < later][:TIMES]
    return chosen


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("kind", list(PUBLICATIONS))
def test_table_is_restored_as_of_any_time_though_it_is_written_to(
    postgres, postgres_database, make, kind, identity
):
    busy = make(postgres, postgres_database, kind, identity)
    results = {}
    with busy.archiving(), busy.writing():
        busy.grow()
        busy.base()
        since = busy.moment()
        for _ in range(BASES):
            busy.grow()
            at_us = busy.draw.randrange(since, busy.moment())
            results[at_us] = busy.found(at_us)
            busy.base()
    with busy.writing():  # of this the archive has nothing
        busy.grow()
    for at_us in times(busy, since):
        results[at_us] = busy.found(at_us)
    compare(busy, results)
    if kind != "table":
        refused_behind_a_truncation(busy, since)


def refused_behind_a_truncation(busy: Busy, since_us: int) -> None:
    """The log of such a publication does not tell whether the table was UNLOGGED for a time."""
    busy.base()
    sure = busy.moment()
    busy.run("TRUNCATE t", "INSERT INTO t (id, part) VALUES (1, 1)")
    after = busy.moment()
    with busy.writing():
        busy.grow()
    with pytest.raises(SourceError) as caught:
        busy.found(after)
    assert caught.value.code == "TR-8211"
    busy.base()
    at_us = busy.moment()
    with busy.writing():
        busy.grow()
    compare(busy, {each: busy.found(each) for each in (since_us, at_us)})
    with pytest.raises(SourceError):
        busy.found(sure)


@pytest.mark.usefixtures("_small_pieces")
def test_table_is_restored_as_of_any_time_though_the_server_was_killed(make):
    with start_postgres("18") as server:
        server.execute("CREATE DATABASE shop")
        busy = make(server, "shop", "table")
        results, since = {}, 0
        with busy.archiving(), busy.writing(survives=True):
            busy.grow()
            busy.base()
            since = busy.moment()
            for _ in range(BASES):
                busy.grow()
                with brought_back(server):
                    server.kill()
                busy.grow()
                at_us = busy.draw.randrange(since, busy.moment())
                results[at_us] = busy.found(at_us)
                busy.base()
        archive_wal_to_end(busy.options, busy.options.archive, Secret(KEY))
        for at_us in times(busy, since):
            results[at_us] = busy.found(at_us)
        compare(busy, results)


def times_of_rewrites(busy: Busy, since_us: int) -> set[int]:
    """The times of rewrites, and of the transactions that follow each."""
    rewrites = {change["xid"] for change in busy.history.changes() if change["op"] == "REWRITE"}
    commits = [commit for commit in busy.history.commits() if commit.at_us > since_us]
    places = [n for n, commit in enumerate(commits) if commit.xid in rewrites]
    assert len(places) == REWRITES
    return {commit.at_us for n in places for commit in commits[n : n + 6]}


@pytest.mark.parametrize("late", [False, True], ids=["prompt", "late"])
def test_table_whose_rows_were_rewritten_meanwhile_is_restored_exactly_or_refused(
    postgres, postgres_database, make, monkeypatch, late
):
    """The archiver looks all the time. With a late standby commits are in the log before they are visible.

    The transactions behind a rewrite count: what was seen shortly before it must not vouch for them.
    """
    monkeypatch.setattr(sightings, "_PAUSE_S", 0.0)
    busy = make(postgres, postgres_database, "table")
    with (
        late_standby(postgres) if late else nullcontext(),
        busy.archiving(),
        busy.writing(),
        repeatedly(lambda: busy.run("INSERT INTO other (d) VALUES ('x')"), 0.01),
    ):
        busy.grow()
        busy.base()
        since = busy.moment()
        for _ in range(REWRITES):
            busy.grow()
            busy.history.rewrite("a")
            busy.grow()
            busy.base()
    results = {}
    for at_us in (*times(busy, since), *times_of_rewrites(busy, since)):
        try:
            results[at_us] = busy.found(at_us)
        except SourceError as error:
            if error.code != "TR-8211":
                raise
    compare(busy, results)
    assert len(results) > TIMES / 4
