"""MariaDB's domain GTIDs as starting positions; failovers are in `test_failover`."""

from __future__ import annotations

from tailrace.sources.mysql.start.starting import starting_position
from tests.support.engine import options_for


def test_stream_starts_behind_the_gtids_it_is_given(mariadb, mariadb_database):
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    places = []
    for id_ in range(4):
        mariadb.execute(
            f"SET gtid_domain_id = {90 + id_ % 2}", f"INSERT INTO {mariadb_database}.t VALUES ({id_})"
        )
        places.append(
            (
                mariadb.execute("SHOW MASTER STATUS")[0][:2],
                mariadb.execute("SELECT @@global.gtid_binlog_pos")[0][0],
            )
        )
    for (file, pos), gtids in places:
        options = options_for(mariadb, f"{mariadb_database}.t", startingPosition=f"gtid:{gtids}")
        found = starting_position(options)
        assert (found.file, found.pos, sorted(found.gtids.split(","))) == (
            file,
            int(pos),
            sorted(gtids.split(",")),
        )
