"""Debezium 3.6 itself and Tailrace's `debezium` shape read the same changes: their messages are equal."""

from __future__ import annotations

import re

import pytest

from bench.peers.compare import Difference, compare
from bench.peers.toolkit import UnavailableError
from bench.servers import Server

pytestmark = pytest.mark.slow

#: Differences that are still to be mended, by table and field.
OPEN = (
    # FLOAT(M,D) is Connect's float64 in Debezium, Tailrace has float32
    ("numbers", r"value\.(before|after)\.rounded"),
    ("numbers", r"schemas\.value\.fields\[(before|after)\]\.fields\[rounded\]\.type"),
    # the log's own metadata, from which schemas come, has no column defaults
    ("defaults", r"schemas\.value\.fields\[(before|after)\]\.fields\[\w+\]\.default \(field\)"),
)


@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
def test_messages_equal_those_of_debezium(mysql, spark, schemas):
    server = Server(mysql.host, mysql.port, mysql.user, mysql.password, None)
    try:
        found = compare(server, spark, schemas=schemas)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert [str(difference) for difference in found if not _open(difference)] == []


def _open(difference: Difference) -> bool:
    return any(
        difference.topic == table and re.fullmatch(path, difference.path) is not None for table, path in OPEN
    )
