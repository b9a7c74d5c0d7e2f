"""The list of Debezium's properties against the connectors' own definitions."""

from __future__ import annotations

import pytest

from tailrace.config.importing.debezium_properties import PROPERTIES, known
from tests.support.plugins import debezium_jars, run_java

pytestmark = pytest.mark.slow

_CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "postgres": "io.debezium.connector.postgresql.PostgresConnector",
}


def test_every_property_of_the_connectors_is_in_the_list_and_no_other_is():
    names = set()
    for connector, name in _CLASSES.items():
        printed = run_java("Properties.java", debezium_jars(connector), [name, f"{name}Config"])
        names |= set(printed.split())
    assert len(names) > 150
    assert sorted(name for name in names if known(name) is None) == []
    others = {p.name for p in PROPERTIES if "*" not in p.name} - names
    assert {name for other in others for name in other.split(", ")} == _OF_CONNECT | _OF_OTHER_CLASSES


_OF_CONNECT = {"name", "connector.class", "tasks.max", "transforms", "predicates"}
#: Read by classes that the connectors use: of names of topics, of channels of signals, of values.
_OF_OTHER_CLASSES = {
    "field.name.adjustment.mode",
    "money.fraction.digits",
    "offset.mismatch.strategy",
    "read.only",
    "signal.file",
    "signal.kafka.bootstrap.servers",
    "signal.kafka.topic",
    "skip.messages.without.change",
    "source.struct.version",
    "topic.cache.size",
    "topic.delimiter",
    "topic.heartbeat.prefix",
    "topic.transaction",
}
