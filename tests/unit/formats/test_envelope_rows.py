from dataclasses import replace

from tailrace import __version__
from tailrace.formats.envelope_rows import envelope_schema, to_envelopes
from tests.unit.formats.changes import ORDERS, batch, change

A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}


def test_envelope_holds_both_images_and_the_source():
    changes = batch(ORDERS, [change("u", A, B, row=4), change("d", B, thread=None, txn=None)])
    envelopes = to_envelopes(changes, 1_800_000_000_000, name="app")
    assert envelopes.schema == envelope_schema(ORDERS)
    source = {
        "version": __version__,
        "connector": "mysql",
        "name": "app",
        "ts_ms": 1_700_000_000_123,
        "snapshot": "false",
        "db": "shop",
        "table": "orders",
        "server_id": 7,
        "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
        "file": "binlog.000001",
        "pos": 200,
        "row": 4,
        "thread": 11,
    }
    rest = {"ts_ms": 1_800_000_000_000, "_seq": "0000000000010000000000c800000000", "_absent": None}
    assert envelopes.to_pylist() == [
        {"before": A, "after": B, "op": "u", "source": source, **rest},
        {
            "before": B,
            "after": None,
            "op": "d",
            "source": {**source, "row": 0, "thread": None, "gtid": None},
            **rest,
        },
    ]


def test_rows_read_by_a_select_are_marked_as_snapshot():
    envelopes = to_envelopes(batch(ORDERS, [change("r", None, A), change("c", None, B)]), 0, name="app")
    assert [s["snapshot"] for s in envelopes.column("source").to_pylist()] == ["true", "false"]


def test_only_ts_ms_depends_on_when_the_batch_is_processed():
    changes = batch(ORDERS, [change("u", A, B)])
    first, second = (to_envelopes(changes, now, name="app").drop_columns("ts_ms") for now in (1, 2))
    assert first.equals(second)


def test_columns_that_the_log_left_out_are_named_for_each_image():
    changes = batch(ORDERS, [change("c", None, A), change("u", A, B), change("d", B), change("r", None, A)])
    only_after = replace(changes, absent_after=("name",))
    both = replace(changes, absent_before=("id", "name"), absent_after=("name",))
    assert to_envelopes(only_after, 0, name="app").column("_absent").to_pylist() == [
        {"before": None, "after": ["name"]},
        {"before": None, "after": ["name"]},
        None,
        None,
    ]
    assert to_envelopes(both, 0, name="app").column("_absent").to_pylist() == [
        {"before": None, "after": ["name"]},
        {"before": ["id", "name"], "after": ["name"]},
        {"before": ["id", "name"], "after": None},
        None,
    ]
