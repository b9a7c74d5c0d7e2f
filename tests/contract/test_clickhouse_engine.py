"""What a sink may rest on: tried with the engine of ClickHouse, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.clickhouse import ClickHouse

#: As large as `_seq` may be: 128 bits.
_HIGH = (1 << 128) - 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with ClickHouse(Path(tmp_path_factory.mktemp("clickhouse"))) as running:
        yield running


def _rows(value: str, *, id_: int, seq: int, deleted: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([id_], pa.int64()),
            "v": [value],
            "_seq": pa.array([seq.to_bytes(16, "little")], pa.binary(16)),
            "_deleted": pa.array([deleted], pa.uint8()),
        }
    )


def test_the_highest_version_of_a_key_wins_in_any_order_and_a_stale_row_brings_no_key_back(
    server: ClickHouse,
) -> None:
    client = server.connect()
    client.command(
        "CREATE TABLE rows (id Int64, v Nullable(String), _seq UInt128, _deleted UInt8)"
        " ENGINE = ReplacingMergeTree(_seq, _deleted) ORDER BY id"
    )
    written = [
        _rows("a", id_=1, seq=_HIGH + 1, deleted=0),
        _rows("c", id_=1, seq=_HIGH + 3, deleted=0),
        _rows("b", id_=1, seq=_HIGH + 2, deleted=0),
        _rows("x", id_=2, seq=_HIGH + 1, deleted=0),
        _rows("x", id_=2, seq=_HIGH + 5, deleted=1),
        _rows("stale", id_=2, seq=_HIGH + 4, deleted=0),
    ]
    for table in [*written, *written]:
        client.insert_arrow("rows", table)
    found = client.query("SELECT id, v, toString(_seq) FROM rows FINAL ORDER BY id").result_rows
    assert [tuple(row) for row in found] == [(1, "c", str(_HIGH + 3))]


def test_a_block_with_a_token_is_inserted_once_even_if_the_server_was_killed(server: ClickHouse) -> None:
    client = server.connect()
    client.command(
        "CREATE TABLE changes (id Int64) ENGINE = MergeTree ORDER BY id"
        " SETTINGS non_replicated_deduplication_window = 100"
    )
    table = pa.table({"id": pa.array(range(1000), pa.int64())})

    def insert(token: str | None) -> int:
        settings = {} if token is None else {"insert_deduplication_token": token}
        client.insert_arrow("changes", table, settings={"async_insert": 0, **settings})
        return int(client.query("SELECT count() FROM changes").result_rows[0][0])

    assert insert("stream:1:0") == 1000
    assert insert("stream:1:0") == 1000
    assert insert("stream:2:0") == 2000  # the same rows in another batch are no repetition
    server.kill()
    server.start()
    client = server.connect()
    assert insert("stream:2:0") == 2000
    assert insert("stream:3:0") == 3000


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("Decimal(76, 10)", pa.array([Decimal("1.5")], pa.decimal256(76, 10)), "1.5"),
        ("Nullable(DateTime64(6))", pa.array([0], pa.timestamp("us")), "1970-01-01 00:00:00.000000"),
        ("UInt64", pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
        ("JSON", pa.array(['{"a":1}']), '{"a":1}'),
        ("LowCardinality(Nullable(String))", pa.array(["a"]), "a"),
        ("Array(Nullable(Int32))", pa.array([[1, None]], pa.list_(pa.int32())), "[1,NULL]"),
    ],
)
def test_arrow_values_arrive_as_they_are(
    server: ClickHouse, column: str, values: pa.Array, text: str
) -> None:
    client = server.connect()
    client.command(f"CREATE OR REPLACE TABLE held (v {column}) ENGINE = MergeTree ORDER BY tuple()")
    client.insert_arrow("held", pa.table({"v": values}))
    assert client.query("SELECT toString(v) FROM held").result_rows[0][0] == text


def test_a_column_of_the_key_cannot_change_its_type(server: ClickHouse) -> None:
    from clickhouse_connect.driver.exceptions import DatabaseError

    client = server.connect()
    client.command("CREATE TABLE keyed (id Int64) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(DatabaseError, match="code: 524"):
        client.command("ALTER TABLE keyed MODIFY COLUMN id String")
