"""What the source says of a MariaDB server, and finds in its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import PositionLostError, SchemaMismatchError
from tailrace.model.table import TableId
from tailrace.sources import registry
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.binlog.dump import DumpStream, read_log
from tailrace.sources.mysql.checks.preflight import check, require
from tailrace.sources.mysql.connection import connect, server_facts
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.starting import position_by_gtids, starting_position
from tailrace.sources.mysql.wire.kernels.boundaries import ROWS
from tailrace.sources.mysql.wire.transactions import TransactionIndex
from tailrace.sources.preflight import Severity, render
from tailrace_dev.servers import MariaDbServer
from tests.support import logged
from tests.support.databases import global_variable
from tests.support.wait import wait_until


def _options(server: MariaDbServer, database: str, **more: str) -> SourceOptions:
    return parse_options(
        {
            "url": server.url,
            "user": server.user,
            "password": server.password,
            "tables": rf"{database}\..*",
            **more,
        }
    )


@pytest.fixture
def durable(mariadb: MariaDbServer) -> Iterator[None]:
    """The settings of a server that loses nothing in a crash; those of the tests are faster."""
    with (
        global_variable(mariadb, "sync_binlog", "1"),
        global_variable(mariadb, "innodb_flush_log_at_trx_commit", "1"),
    ):
        yield


@pytest.mark.usefixtures("durable")
def test_server_set_up_for_capture_has_no_finding(mariadb: MariaDbServer, mariadb_database: str) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    for url in (mariadb.url, mariadb.url.replace("mariadb:", "mysql:")):
        options = _options(mariadb, mariadb_database, url=url)
        findings = check(options)
        assert {f.severity for f in findings} == {Severity.OK}, render(findings)
        require(options)


@pytest.mark.usefixtures("durable")
@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("binlog_format", "'MIXED'", "ROW"),
        ("binlog_row_image", "'MINIMAL'", "FULL"),
        ("binlog_row_metadata", "'NO_LOG'", "FULL"),
        ("mysql56_temporal_format", "0", "ON"),
    ],
)
def test_setting_that_loses_something_is_an_error_with_the_statement_that_mends_it(
    mariadb: MariaDbServer, mariadb_database: str, name: str, bad: str, good: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    with global_variable(mariadb, name, bad):
        (found,) = [f for f in check(_options(mariadb, mariadb_database)) if f.severity is not Severity.OK]
    assert (found.check, found.severity) == (name, Severity.ERROR)
    assert found.remedy.startswith(f"SET GLOBAL {name} = {good};")


@pytest.mark.usefixtures("durable")
def test_row_images_without_duplicates_are_exact_but_slow(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    with global_variable(mariadb, "binlog_row_image", "'FULL_NODUP'"):
        (found,) = [f for f in check(_options(mariadb, mariadb_database)) if f.severity is not Severity.OK]
    assert (found.check, found.severity) == ("binlog_row_image", Severity.WARNING)
    assert found.remedy.startswith("SET GLOBAL binlog_row_image = FULL;")


def test_generated_columns_are_named_as_omitted(mariadb: MariaDbServer, mariadb_database: str) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.g (id INT PRIMARY KEY, a INT, b INT AS (a + 1) STORED)")
    (found,) = [f for f in check(_options(mariadb, mariadb_database)) if f.code == "TR-1451"]
    assert (found.severity, found.table) == (Severity.WARNING, f"{mariadb_database}.g")
    assert "columns b" in found.found


def test_table_with_system_versioning_is_refused_by_name(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.old (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    options = _options(mariadb, mariadb_database)
    refused = [f for f in check(options) if f.severity is Severity.ERROR]
    assert [f.check for f in refused] == [f"table {mariadb_database}.old"]
    assert "DROP SYSTEM VERSIONING" in refused[0].remedy
    with (
        closing(connect(options, purpose="test")) as connection,
        pytest.raises(SchemaMismatchError, match="system versioning"),
    ):
        catalog.tables(connection, options.captures)


def test_servers_are_told_apart_by_more_than_their_id(mariadb: MariaDbServer, mariadb_database: str) -> None:
    with closing(connect(_options(mariadb, mariadb_database), purpose="test")) as connection:
        facts = server_facts(connection)
    assert facts.flavor == "mariadb"
    assert facts.server_uuid.startswith("mariadb:1:")
    assert len(facts.server_uuid) > len("mariadb:1:")


@pytest.mark.parametrize("compress", ["0", "1"])
def test_rows_are_counted_in_packed_events_as_in_plain_ones(
    mariadb: MariaDbServer, mariadb_database: str, compress: str
) -> None:
    table = f"{mariadb_database}.t"
    mariadb.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(900), c VARCHAR(500) COMPRESSED,"
        " b TEXT COMPRESSED)"
    )
    start = logged.end_of_log(mariadb)
    with global_variable(mariadb, "log_bin_compress", compress):
        mariadb.execute(
            f"INSERT INTO {table} SELECT seq, REPEAT('x', seq), REPEAT('y', seq), REPEAT('z', seq)"
            f" FROM {mariadb_database}.seq_1_to_400",
            f"UPDATE {table} SET v = NULL WHERE id > 150",
            f"DELETE FROM {table} WHERE id <= 7",
        )
    index = TransactionIndex(lambda table: table == TableId(mariadb_database, "t"), count_rows=True)
    counts = []
    for block in read_log(_options(mariadb, mariadb_database), start, logged.end_of_log(mariadb)):
        counts += index.feed(block).rows[:, ROWS].tolist()
    assert counts == [400, 250, 7]


def test_purged_position_is_lost_with_what_is_left(mariadb: MariaDbServer, mariadb_database: str) -> None:
    options = _options(mariadb, mariadb_database)
    with pytest.raises(PositionLostError, match=r"no longer holds `binlog\.000999:4`") as lost:
        next(DumpStream(options, "binlog.000999", 4, blocking=False).blocks())
    assert "SET GLOBAL binlog_expire_logs_seconds" in str(lost.value)


@pytest.mark.parametrize("wanted", ["earliest", "initial", "timestamp:2100-01-01T00:00:00Z"])
def test_starting_positions_carry_the_gtids_up_to_them(
    mariadb: MariaDbServer, mariadb_database: str, wanted: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    found = starting_position(_options(mariadb, mariadb_database, startingPosition=wanted))
    if wanted == "earliest":
        first = mariadb.execute("SHOW BINARY LOGS")[0][0]
        gtids = mariadb.execute(f"SELECT BINLOG_GTID_POS('{first}', 4)")[0][0]
        assert (found.file, found.gtids) == (first, gtids)
    else:
        gtids = mariadb.execute("SELECT @@global.gtid_binlog_pos")[0][0]
        assert sorted(found.gtids.split(",")) == sorted(gtids.split(","))
        assert MySqlPosition(found.file, found.pos).order <= logged.end_of_log(mariadb).order


def _begin_file(server: MariaDbServer) -> MySqlPosition:
    """A new file that holds nothing but its head and BINLOG_CHECKPOINTs; the log's end."""
    server.execute("FLUSH BINARY LOGS")
    end = logged.end_of_log(server)

    def last():
        return server.execute(f"SHOW BINLOG EVENTS IN '{end.file}'")[-1]

    wait_until(lambda: last()[5] == end.file, 10, "a BINLOG_CHECKPOINT that releases the earlier files")
    assert last()[2] == "Binlog_checkpoint"
    return logged.end_of_log(server)


def test_log_that_ends_in_a_checkpoint_is_followed_to_its_end(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    """Whoever waits for the log's end would wait until something is written: after each start of a server."""
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    source = registry.source(_options(mariadb, mariadb_database))
    position = source.log_end()
    log = source.follow(position, lambda _: True)
    _begin_file(mariadb)
    end = source.log_end()
    while position.order < end.order:
        start = position
        found = wait_until(
            lambda start=start: log.range_after(start, upto=None, max_bytes=None, max_rows=None),
            10,
            lambda: f"the log's end {end}; the head is {log.head()}",
        )
        position = found.end
        assert not found.has_changes
    assert (position.order, position.gtids) == (end.order, end.gtids)
    assert log.range_after(position, upto=end, max_bytes=None, max_rows=None) is None
    log.close()
    source.close()


def test_places_behind_a_checkpoint_are_found(mariadb: MariaDbServer, mariadb_database: str) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    end = _begin_file(mariadb)
    at_end = starting_position(
        _options(mariadb, mariadb_database, startingPosition=f"file:{end.file}:{end.pos}")
    )
    assert at_end.order == end.order
    mariadb.execute(f"INSERT INTO {mariadb_database}.t VALUES (1)")
    middle, gtids = logged.end_of_log(mariadb), mariadb.execute("SELECT @@global.gtid_binlog_pos")[0][0]
    mariadb.execute(f"INSERT INTO {mariadb_database}.t VALUES (2)")
    found = position_by_gtids(_options(mariadb, mariadb_database), GtidSet.parse(gtids))
    assert found.order == middle.order
    within = f"file-at-or-before:{middle.file}:{middle.pos + 40}"
    found = starting_position(_options(mariadb, mariadb_database, startingPosition=within))
    assert found.order == middle.order
    assert found.ts_ms > 0


def test_xa_transaction_in_one_phase_comes_as_any_other(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    batches = logged.changes_during(
        mariadb,
        mariadb_database,
        lambda: mariadb.execute(
            "XA START 'x'",
            f"INSERT INTO {mariadb_database}.t VALUES (1)",
            "XA END 'x'",
            "XA COMMIT 'x' ONE PHASE",
        ),
        mariadb=True,
    )
    assert [row for b in batches for row in b.image("after").to_pylist()] == [{"id": 1}]
