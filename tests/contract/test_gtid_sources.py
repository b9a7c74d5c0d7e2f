"""`gtid.source.includes` and `.excludes`: changes of some servers are given, whichever server logs them."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tailrace.errors import SourceError
from tailrace.model.gtid_sources import GtidSources
from tailrace.sources.mysql.checks.preflight import check
from tailrace.sources.mysql.wire.kernels.events import TX_HAS_GTID, TX_WORDS
from tailrace.sources.mysql.wire.rare.gtids import are_given
from tailrace.sources.preflight import Severity
from tailrace.sources.wire.kernels.rowbatch import EV_WORDS
from tailrace_dev.servers import MariaDbServer, MySqlServer
from tests.support.engine import Engine, options_for, rows_of


def _options(server: Any, database: str, **given: str) -> Any:
    return options_for(
        server,
        rf"{database}\.t",
        startingPosition="latest",
        url=server.url.replace("mariadb:", "mysql:"),
        **given,
    )


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
@pytest.mark.parametrize("way", ["include", "exclude"])
def test_changes_of_other_servers_are_left_out(
    mysql: MySqlServer, database: str, way: str, compressed: str
) -> None:
    one, other = (str(uuid.uuid4()) for _ in range(2))
    own = str(mysql.execute("SELECT @@server_uuid")[0][0])
    mysql.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    lists = {
        "include": {"gtid.source.includes": one.upper()},
        "exclude": {"gtid.source.excludes": f"{other[:8]}.*, {own}"},
    }
    with Engine(_options(mysql, database, **lists[way])) as engine:
        engine.next()
        with closing(mysql.connect(database=database)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_transaction_compression = {compressed}")
            for n in range(30):
                source = (one, other, own)[n % 3]
                cursor.execute(f"SET GTID_NEXT = '{source}:{n + 1}'" if source != own else "DO 0")
                cursor.execute(f"INSERT INTO t VALUES ({n})")
                cursor.execute("SET GTID_NEXT = 'AUTOMATIC'")
            cursor.execute(f"SET GTID_NEXT = '{one}:100'")
            cursor.execute("XA START 'x'")
            cursor.execute("INSERT INTO t VALUES (100)")
            cursor.execute("XA END 'x'")
            cursor.execute("XA PREPARE 'x'")
            cursor.execute(f"SET GTID_NEXT = '{other}:100'")
            cursor.execute("XA COMMIT 'x'")  # whose server counts
            cursor.execute("SET GTID_NEXT = 'AUTOMATIC'")
        found: list[int] = []
        while 27 not in found:
            if (batch := engine.next()) is not None:
                first, again = engine.read(*batch)[1], engine.read(*batch)[1]
                assert rows_of(first) == rows_of(again)
                found += [row["id"] for row in rows_of(first)]
    assert found == list(range(0, 30, 3))


def test_a_transaction_without_a_gtid_has_no_known_server() -> None:
    txs, events = np.zeros((2, TX_WORDS), np.int64), np.zeros((1, EV_WORDS), np.int64)
    txs[1, TX_HAS_GTID] = 1
    with pytest.raises(SourceError, match="without a GTID") as error:
        are_given(txs, events, GtidSources((".*",)), "binlog.000001")
    assert error.value.code == "TR-1093"


def test_mariadb_has_no_such_servers(mariadb: MariaDbServer, mariadb_database: str) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    options = _options(mariadb, mariadb_database, **{"gtid.source.includes": ".*"})
    (finding,) = [f for f in check(options) if f.check == "gtid_mode"]
    assert (finding.severity, finding.code) == (Severity.ERROR, "TR-1093")
