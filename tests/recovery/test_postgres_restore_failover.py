"""`tailrace restore` of a PostgreSQL table behind a failover: exactly as it was at a time, or a refusal.

A promoted standby has the log of its primary up to the promotion. What bases and the archiver have seen of
the table up to there counts as before; what they saw in the part that it lacks must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, PositionLostError, SourceError
from tailrace.model.table import TableId
from tailrace.pipeline.postgres_restore import restored
from tailrace.sources.postgres.archiving.at_time import server_history
from tailrace.sources.postgres.archiving.keeping import keep_base
from tailrace.sources.postgres.archiving.sightings import Lookout, sightings
from tailrace.sources.postgres.position import parse_lsn
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tests.support.archives import archive_wal_to_end
from tests.support.postgres import options_for
from tests.support.replication import cut_off, has_slot, postgres_of, promote_standby, standby_of
from tests.support.switch import Switch
from tests.support.wait import wait_until

KEY = Secret("11" * 32)
TABLE = TableId("public", "t")
REWRITE = "ALTER TABLE t ALTER a TYPE int USING a + {}"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Archived:
    """A table of a primary that has a standby, with an archive of its log and one base.

    Args:
        directory: for the archive.
        servers: stops them.
    """

    def __init__(self, directory: Path, servers: ExitStack) -> None:
        self._servers = servers
        self.primary = self.server = servers.enter_context(postgres_of("18"))
        self._address = servers.enter_context(Switch(self.primary))
        where = directory / "archive"
        self.options = options_for(self._address, "shop", r"public\..*", archive=where, archiveKey="11" * 32)
        self.run(
            "CREATE TABLE t (id int PRIMARY KEY, a int)",
            "CREATE TABLE other (id serial PRIMARY KEY)",
            "INSERT INTO t SELECT n, n FROM generate_series(0, 99) n",
        )
        self.archive()
        self.base()
        self.standby = servers.enter_context(standby_of(self.primary))

    def run(self, *statements: str) -> Any:
        return self.server.execute(*statements, database="shop")

    def archive(self, **given: Any) -> WalArchive:
        return archive_wal_to_end(self.options, self.options.archive, KEY, **given)

    def base(self) -> None:
        keep_base(self.options, WalArchive(self.options.archive, KEY))

    def now(self) -> tuple[int, dict[int, int]]:
        """The server's time, between two transactions, and the rows."""
        ((at_us,),) = self.run("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 1")
        return int(at_us), dict(self.run("SELECT id, a FROM t"))

    def change(self, value: int) -> tuple[int, dict[int, int]]:
        """Change rows, and remember them."""
        self.run(
            f"UPDATE t SET a = a + {value} WHERE id % 3 = 0", f"INSERT INTO t VALUES ({1000 + value}, 1)"
        )
        return self.now()

    def until_copied(self) -> None:
        """Archive until the standby's copy of the archive's slot would outlive a failover."""

        def copied() -> bool:
            self.run("SELECT pg_log_standby_snapshot()", "INSERT INTO other DEFAULT VALUES")
            slot = self.archive().slot
            return has_slot(self.standby, slot)

        wait_until(copied, 60, "the copy of the archive's slot")

    def until_received(self) -> None:
        """Wait until the standby has all of the log."""
        end = self.run("SELECT pg_current_wal_flush_lsn()::text")[0][0]
        self.standby.wait_until(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn", bool)

    def fail_over(self) -> None:
        self.primary.kill()
        promote_standby(self.standby)
        self._address.point(self.standby)
        self.server = self.standby

    def found(self, at_us: int) -> dict[int, int]:
        parts = restored(self.options, TABLE, at_us).rows
        return {row["id"]: row["a"] for part in parts for row in part.to_pylist()}

    def refused(self, at_us: int) -> str:
        with pytest.raises(SourceError) as caught:
            self.found(at_us)
        assert caught.value.code == "TR-8211"
        return str(caught.value.detail)


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[[], Archived]]:
    with ExitStack() as servers:
        yield lambda: Archived(tmp_path, servers)


def test_times_before_and_behind_a_failover_are_restored_up_to_the_last_look(make):
    table = make()
    moments = [table.change(1)]
    table.until_copied()
    moments.append(table.change(2))
    table.archive()
    moments.append(table.change(3))  # the archiver has not seen it
    table.until_received()
    table.fail_over()
    moments.append(table.change(4))
    table.archive()
    (seen,) = sightings(WalArchive(table.options.archive, KEY))[str(TABLE)]
    assert (seen.since.timeline[0], seen.until.timeline[0]) == ("1", "2")
    table.run(REWRITE.format(7))
    behind, _ = table.change(5)
    table.archive()
    assert "was altered" in table.refused(behind)
    table.base()
    moments.append(table.change(6))
    table.archive()
    table.run("DROP TABLE t")
    for at_us, rows in moments:
        assert table.found(at_us) == rows


def test_what_was_seen_in_a_part_of_the_log_that_the_promoted_standby_lacks_does_not_count(make):
    table = make()
    before = table.change(1)
    table.until_copied()
    table.until_received()
    cut_off(table.standby)
    table.run(REWRITE.format(50))
    lost, _ = table.change(2)
    table.archive()
    table.base()
    table.fail_over()
    table.run(REWRITE.format(7))  # by the transaction's number of the one that is lost
    with pytest.raises(PositionLostError) as caught:
        table.archive()
    assert caught.value.code == "TR-8208"
    table.archive(allow_gap=True)
    table.base()
    again = table.change(3)
    table.archive()
    for at_us, rows in (before, again):
        assert table.found(at_us) == rows
    with pytest.raises(ConfigError) as caught:
        table.found(lost)
    assert caught.value.code == "TR-8217"


def test_what_the_archiver_has_begun_to_see_on_the_primary_does_not_count_on_another(make):
    table = make()
    table.until_copied()
    table.until_received()
    cut_off(table.standby)
    with (
        closing(Lookout(table.options, WalArchive(table.options.archive, KEY))) as lookout,
        closing(table.primary.connect(database="shop", autocommit=False)) as open_,
    ):
        open_.cursor().execute("INSERT INTO other DEFAULT VALUES")
        table.run("SELECT pg_switch_wal()", "INSERT INTO other DEFAULT VALUES")
        lookout.look(server_history(table.options))  # waits for the open transaction
        table.fail_over()
        for _ in range(20):  # the numbers of transactions go on beyond those of the primary
            table.run("INSERT INTO other DEFAULT VALUES")
        lookout.look(server_history(table.options))
        lookout.keep()
    end = parse_lsn(table.run("SELECT pg_current_wal_flush_lsn()::text")[0][0])
    seen = sightings(WalArchive(table.options.archive, KEY))[str(TABLE)]
    assert seen[-1].until.lsn <= end
