"""Message keys of other columns, of what the logs of real servers hold."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from tailrace.errors import SinkError
from tailrace.sinks.kafka.message_keys import keyed
from tests.support import postgres as of_postgres
from tests.support.engine import Engine, changes_of, options_for


def ops(batches, key):
    return [(op, before, after) for op, before, after, _ in changes_of([keyed(b, key) for b in batches])]


def row(id_, owner, big=None):
    return {"id": id_, "owner": owner, "big": big}


def changes_until_now(engine):
    """What a stream with the trigger AvailableNow reads of the log."""
    engine.plan.hold()
    changes = []
    while (batch := engine.next()) is not None:
        changes += engine.read(*batch)[1]
    return changes


UPDATES = (
    "UPDATE {t} SET big = 'x' WHERE id = 1",
    "UPDATE {t} SET owner = 8 WHERE id = 1",
    "UPDATE {t} SET id = 2 WHERE id = 1",
    "UPDATE {t} SET id = 3, owner = NULL WHERE id = 2",
    "DELETE FROM {t} WHERE id = 3",
)
EXPECTED = [
    ("u", row(1, 7), row(1, 7, "x")),
    ("d", row(1, 7, "x"), None),
    ("c", None, row(1, 8, "x")),
    ("u", row(1, 8, "x"), row(2, 8, "x")),
    ("d", row(2, 8, "x"), None),
    ("c", None, row(3, None, "x")),
    ("d", row(3, None, "x"), None),
]


def test_log_of_mysql_gives_each_message_key_its_changes(mysql, database):
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, owner INT, big TEXT)",
        f"INSERT INTO {table} VALUES (1, 7, NULL)",
    )
    with Engine(options_for(mysql, table)) as engine:
        changes_until_now(engine)
        mysql.execute(*(statement.format(t=table) for statement in UPDATES))
        changes = changes_until_now(engine)
    assert ops(changes, ("owner",)) == EXPECTED


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
def test_log_of_postgresql_needs_the_whole_row_before_a_change(postgres, postgres_database, identity):
    def run(*statements):
        return postgres.execute(*statements, database=postgres_database)

    run(
        "CREATE TABLE t (id int PRIMARY KEY, owner int, big text)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t VALUES (1, 7, NULL)",
    )
    with Engine(of_postgres.options_for(postgres, postgres_database, "public.*")) as engine:
        changes_until_now(engine)
        run(*(statement.format(t="t") for statement in UPDATES))
        changes = changes_until_now(engine)
    if identity == "FULL":
        assert ops(changes, ("owner",)) == EXPECTED
        return
    for number in range(len(changes)):
        with pytest.raises(SinkError, match="does not hold the message key") as refused:
            ops(changes[number:], ("owner",))
        assert refused.value.code == "TR-4405"
