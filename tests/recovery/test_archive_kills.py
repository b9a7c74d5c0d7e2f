"""Pipelines over an archive of the log: whatever is killed, targets are exact, and no server has that log."""

from __future__ import annotations

import pytest

from tests.recovery.test_kill import replayed
from tests.support import postgres as postgres_support
from tests.support.archives import archive_and_purge, archive_wal_to_end
from tests.support.exactness import BusyTable, PostgresTable
from tests.support.logged import files
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS

ROWS, WRITERS = 1500, 8
#: Bytes of the log that are written before each run, and how many of them a batch reads.
LOG_BYTES, BATCH_BYTES = 400_000, "100k"
#: (failpoint, who is killed) of a run that reads nothing but the log.
KILLS = (("log.batch", "jvm"), ("sink.table", "self"), ("offset.planned", "self"), ("sink.committed", "jvm"))


class MySqlLog:
    """A busy table of MySQL or MariaDB whose server has forgotten the log that the archive has."""

    def __init__(self, request, product, directory):
        names = {"mysql": "database", "mariadb": "mariadb_database"}
        self.server, database = (request.getfixturevalue(name) for name in (product, names[product]))
        self.table = BusyTable(self.server, database, SUBJECTS[0])
        self.where = directory / "archive"
        self.source = {"archive": str(self.where)}

    def written(self):
        """How long the log is."""
        return sum((self.server.data / name).stat().st_size for name in files(self.server))

    def keep(self):
        """Archive the log, and let the server forget it."""
        archive_and_purge(self.table.options(), self.where, self.server)


class PostgresLog:
    """A busy table of PostgreSQL whose stream has lost its slot."""

    def __init__(self, request, product, directory):
        self.server = request.getfixturevalue(product)
        self._database = request.getfixturevalue("postgres_database")
        self.table = PostgresTable(self.server, self._database, postgres_support.SUBJECTS[0], "FULL")
        self.where = directory / "archive"
        self._slot = f"slot_{self._database}"
        self.source = {
            "type": "postgresql",
            "database": self._database,
            "slot-name": self._slot,
            "publication-name": "tailrace",
            "archive": str(self.where),
        }

    def written(self):
        """How long the log is."""
        return int(self.server.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])

    def keep(self):
        """Archive the log, and drop the stream's slot."""
        archive_wal_to_end(self.table.options(), self.where)
        its = f"FROM pg_replication_slots WHERE slot_name = '{self._slot}'"
        self.server.wait_until(f"SELECT count(*) = 0 {its} AND active", bool)
        self.server.execute(f"SELECT pg_drop_replication_slot(slot_name) {its}", database=self._database)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_target_is_exact_though_it_is_killed_while_it_reads_the_archive(
    request, spark, tmp_path, product, mode
):
    log = (PostgresLog if product == "postgres" else MySqlLog)(request, product, tmp_path)
    log.table.fill(ROWS)
    log.keep()  # an archive must be there before the stream begins
    source = {**log.source, "max-bytes-per-trigger": BATCH_BYTES}
    run = PipelineProcess(tmp_path, log.server, log.table.name, mode=mode, **source)
    assert run.run() == 0, run.output()
    for failpoint, victim in KILLS:
        before = log.written()
        with log.table.writing(count=WRITERS, keys=2 * ROWS, pause_s=0.01):
            wait_until(lambda before=before: log.written() > before + LOG_BYTES, 120, "the log to grow")
        log.keep()
        run.run(failpoint=failpoint, victim=victim)
    assert run.run() == 0, run.output()
    held = delta_rows(spark, run.targets / log.table.name)
    if mode == "changelog":
        held = replayed(held, log.table.subject.key)
    truth = log.table.now()
    assert {tuple(row[k] for k in log.table.subject.key): row for row in held} == truth
    assert len(held) == len(truth)
