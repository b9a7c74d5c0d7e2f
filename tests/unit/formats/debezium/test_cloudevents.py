import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.model.change import OP_TRUNCATE
from tailrace.model.messages import MESSAGES
from tests.unit.formats.changes import ORDERS, batch, change

A = {"id": 1, "name": "a"}


def events(changes, connector="mysql", **given):
    form = key_value_format(Envelopes(Topics("app"), connector, version="1"), "json", "cloudevents", **given)
    return [(m["key"], m["value"] and json.loads(m["value"])) for m in form.messages(changes, 0).to_pylist()]


def test_event_has_the_attributes_of_debezium_and_the_rows():
    made = events(batch(ORDERS, [change("u", A, {"id": 1, "name": None}), change("d", A)]))
    assert [key for key, _ in made] == [b'{"id":1}'] * 3
    assert made[0][1] == {
        "id": "name:app;file:binlog.000001;pos:200",
        "source": "/debezium/mysql/app",
        "specversion": "1.0",
        "type": "io.debezium.connector.mysql.DataChangeEvent",
        "time": "2023-11-14T22:13:20.123Z",
        "datacontenttype": "application/json",
        "iodebeziumop": "u",
        "iodebeziumversion": "1",
        "iodebeziumconnector": "mysql",
        "iodebeziumname": "app",
        "iodebeziumtsms": "1700000000123",
        "iodebeziumsnapshot": "false",
        "iodebeziumdb": "shop",
        "iodebeziumsequence": None,
        "iodebeziumtsus": "1700000000123456",
        "iodebeziumtsns": "1700000000123456000",
        "iodebeziumtable": "orders",
        "iodebeziumserverid": "7",
        "iodebeziumgtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
        "iodebeziumfile": "binlog.000001",
        "iodebeziumpos": "200",
        "iodebeziumrow": 0,
        "iodebeziumthread": "11",
        "iodebeziumquery": None,
        "iodebeziumtxid": None,
        "iodebeziumtxtotalorder": None,
        "iodebeziumtxdatacollectionorder": None,
        "data": {"before": A, "after": {"id": 1, "name": None}},
    }
    assert (made[1][1]["data"], made[2][1]) == ({"before": A, "after": None}, None)


def test_event_of_oracle_is_known_by_its_scns():
    seq = "0000" + f"{77:016x}" + "000000000002"
    ((_, event),) = events(batch(ORDERS, [change("c", None, A, pos=70, seq=seq)]), "oracle")
    assert event["id"] == "name:app;scn:70;commit_scn:77"
    assert event["iodebeziumscn"] == "70"


def test_truncate_has_no_rows():
    truncate = replace(batch(ORDERS, [change("r")]), op=pa.array([OP_TRUNCATE], pa.int8()))
    [(key, value)] = events(truncate, extensions=False)
    assert (key, value["data"]) == (None, {"before": None, "after": None})


def test_logical_messages_are_refused():
    form = key_value_format(Envelopes(Topics("app"), "postgresql"), "json", "cloudevents")
    with pytest.raises(SinkError, match="logical messages can only be written in JSON"):
        form.schemas(MESSAGES)
