"""The source in plain Spark code: batch reads, requested schemas, checkpoints of other streams, SQL."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
from functools import partial

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.support.postgres import options_for

ACCOUNTS, BALANCE, TABLES = 400, 100, ("left_side", "right_side")
TRANSFER = (
    "UPDATE {} SET balance = balance - 1 WHERE id = {}",
    "UPDATE {} SET balance = balance + 1 WHERE id = {}",
)
CREATE = "CREATE TABLE {} (id int PRIMARY KEY, balance int NOT NULL)"


class Bank:
    """Two tables of accounts whose balances sum up to the same in every transaction.

    Args:
        options: of a read of both tables.
        connect: a connection to their database, without autocommit.
        prefix: the tables' database or schema.
    """

    def __init__(self, options, connect, prefix):
        self.options = options
        self._connect = connect
        self._prefix = prefix
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._transfer)
        self.transfers = 0

    def __enter__(self):
        with self._connect() as connection, contextlib.closing(connection.cursor()) as cursor:
            for table in TABLES:
                cursor.execute(CREATE.format(f"{self._prefix}.{table}"))
                values = ", ".join(f"({n}, {BALANCE})" for n in range(ACCOUNTS))
                cursor.execute(f"INSERT INTO {self._prefix}.{table} VALUES {values}")
            connection.commit()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _transfer(self):
        draw = random.Random(1)
        with self._connect() as connection, contextlib.closing(connection.cursor()) as cursor:
            while not self._stop.is_set():
                for statement, table in zip(TRANSFER, draw.sample(TABLES, 2), strict=True):
                    cursor.execute(statement.format(f"{self._prefix}.{table}", draw.randrange(ACCOUNTS)))
                connection.commit()
                self.transfers += 1


def mysql_options(server, tables, **given):
    return {"url": server.url, "user": server.user, "password": server.password, "tables": tables, **given}


@pytest.fixture(params=["mysql", "mariadb", "postgres"])
def bank(request):
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        name = request.getfixturevalue("postgres_database")
        found = options_for(server, name, "public.*")
        options = {"url": f"postgresql://{found.host}:{found.port}/{name}", "tables": "public.*"}
        options |= {"user": server.user, "password": server.password, "shape": "debezium"}
        connect = lambda: contextlib.closing(server.connect(database=name, autocommit=False))  # noqa: E731
        prefix = "public"
    else:
        name = request.getfixturevalue("database" if request.param == "mysql" else "mariadb_database")
        options = mysql_options(server, f"{name}.*", shape="debezium")
        connect, prefix = partial(server.connect, autocommit=False), name
    with Bank(options, connect, prefix) as made:
        yield made


def test_batch_read_is_of_one_position_across_tables_and_ranges(bank, spark):
    """Each transfer moves money from one table to another: all sums are equal at one position only."""
    columns = [
        "topic",
        "get_json_object(cast(value AS string), '$.after.balance') AS balance",
        "get_json_object(cast(value AS string), '$.op') AS op",
    ]
    for _ in range(2):
        before = bank.transfers
        frame = spark.read.format("tailrace").options(**bank.options, snapshotChunkRows="150").load()
        sums = frame.selectExpr(*columns).selectExpr(
            "sum(balance)", "count(*)", "count(DISTINCT topic)", "min(op)"
        )
        found = sums.collect()
        assert tuple(found[0]) == (2 * ACCOUNTS * BALANCE, 2 * ACCOUNTS, 2, "r")
        assert bank.transfers > before, "nothing was written meanwhile"


def test_batch_read_has_the_streams_columns_and_the_rows_of_now(mysql, database, spark):
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(10))")
    mysql.execute(f"INSERT INTO {database}.t VALUES (1, 'a'), (2, NULL)")
    frame = spark.read.format("tailrace").options(**mysql_options(mysql, f"{database}.t")).load()
    assert frame.columns == ["id", "v", "_op", "_seq", "_ts_ms", "_txn", "_position", "_absent"]
    assert sorted((r.id, r.v, r._op) for r in frame.collect()) == [(1, "a", "r"), (2, None, "r")]
    mysql.execute(f"INSERT INTO {database}.t VALUES (3, 'c')")
    again = spark.read.format("tailrace").options(**mysql_options(mysql, f"{database}.t")).load()
    assert again.count() == 3
    assert frame.count() == 2, "a DataFrame keeps its position"


def test_postgres_batch_read_leaves_no_slot_and_no_publication(postgres, postgres_database, spark):
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=postgres_database
    )
    options = {
        "url": f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
        "user": postgres.user,
        "password": postgres.password,
        "tables": "public.t",
    }
    assert [r.id for r in spark.read.format("tailrace").options(**options).load().collect()] == [1]
    left = postgres.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        " UNION ALL SELECT pubname FROM pg_publication",
        database=postgres_database,
    )
    assert not list(left)


def test_position_of_the_log_is_refused_for_a_batch_read(mysql, database, spark):
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    options = mysql_options(mysql, f"{database}.t", startingPosition="latest")
    with pytest.raises(AnalysisException, match="cannot be `latest` for"):
        spark.read.format("tailrace").options(**options).load().collect()


def test_errors_of_the_user_come_without_our_frames(mysql, database, spark):
    with pytest.raises(AnalysisException) as raised:
        spark.read.format("tailrace").options(**mysql_options(mysql, f"{database}.nothing")).load()
    text = str(raised.value)
    assert f"tables `{database}.nothing`: found no matching table" in text
    assert text.count('File "') == 1


def test_requested_schema_that_differs_is_refused_at_the_start(mysql, database, spark, tmp_path):
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(10))")
    options = mysql_options(mysql, f"{database}.t")
    with pytest.raises(AnalysisException, match="it lacks `v` string"):
        spark.read.format("tailrace").options(**options).schema("id int").load().collect()
    stream = spark.readStream.format("tailrace").options(**options).schema("v string, id int").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(
        StreamingQueryException, match="the schema given for the read is not that of the rows"
    ):
        query.awaitTermination(120)


def test_table_in_sql_is_refused_when_it_is_created_and_a_view_works(mysql, database, spark):
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (7)")
    listed = ", ".join(f"{k} '{v}'" for k, v in mysql_options(mysql, f"{database}.t").items())
    with pytest.raises(AnalysisException, match="a table cannot be created with `USING tailrace`"):
        spark.sql(f"CREATE TABLE not_made USING tailrace OPTIONS ({listed})")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING tailrace OPTIONS ({listed})")
    try:
        assert [tuple(r) for r in spark.sql("SELECT id FROM seen").collect()] == [(7,)]
    finally:
        spark.catalog.dropTempView("seen")


def run_to_end(spark, options, checkpoint, target):
    stream = spark.readStream.format("tailrace").options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", str(target))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)


def test_column_that_is_left_out_is_in_no_row_message_or_schema(mysql, database, spark, tmp_path):
    name = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, secret varchar(10), v int)",
        f"INSERT INTO {name} VALUES (1, 'hidden', 5)",
    )
    left_out = {"column.exclude.list": ".*[.]t[.]secret", "skip.messages.without.change": "true"}
    options = mysql_options(mysql, name, **left_out)
    assert spark.read.format("tailrace").options(**options).load().columns[:3] == ["id", "v", "_op"]
    options |= {"shape": "debezium", "schemasEnable": "true", "topicPrefix": "p"}
    run_to_end(spark, options, tmp_path / "c", tmp_path / "t")
    mysql.execute(
        f"UPDATE {name} SET secret = 'hidden too'",
        f"UPDATE {name} SET secret = 'hidden', v = 6",
        f"INSERT INTO {name} VALUES (2, 'hidden', 7)",
    )
    run_to_end(spark, options, tmp_path / "c", tmp_path / "t")
    rows = spark.read.parquet(str(tmp_path / "t")).collect()
    found = [json.loads(row.value)["payload"] for row in rows]
    assert sorted((m["op"], m["after"]["id"], m["after"]["v"]) for m in found) == [
        ("c", 2, 7),
        ("r", 1, 5),
        ("u", 1, 6),
    ]
    assert not [row for row in rows if "secret" in str(row) or "hidden" in str(row)]


def test_masked_column_is_in_clear_in_no_row_of_table_or_log(mysql, database, spark, tmp_path):
    name = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, mail varchar(100), pin varchar(9), note text)",
        f"INSERT INTO {name} VALUES (1, 'a@clear', 'clear', 'abc clear')",
    )
    masks = {
        "column.mask.hash.v2.SHA-512/256": ".*[.]mail",
        "column.mask.with.2.chars": ".*[.]pin",
        "column.truncate.to.3.chars": ".*[.]note",
        "columnMaskSalt": "pepper",
    }
    options = mysql_options(mysql, name, **masks)
    run_to_end(spark, options, tmp_path / "c", tmp_path / "t")
    mysql.execute(f"UPDATE {name} SET mail = 'b@clear', note = 'def clear'", f"DELETE FROM {name}")
    run_to_end(spark, options, tmp_path / "c", tmp_path / "t")
    rows = spark.read.parquet(str(tmp_path / "t")).orderBy("_seq").collect()
    hashes = [hashlib.new("sha512_256", f"pepper{c}@clear".encode()).hexdigest() for c in "abb"]
    assert [(r._op, r.mail, r.pin, r.note) for r in rows] == [
        ("r", hashes[0], "**", "abc"),
        ("u", hashes[1], "**", "def"),
        ("d", hashes[2], "**", "def"),
    ]
    batch = spark.read.format("tailrace").options(**mysql_options(mysql, name, **masks)).load()
    assert batch.count() == 0


def test_checkpoint_serves_no_other_table_and_no_other_shape(mysql, database, spark, tmp_path):
    for name in ("one", "two"):
        mysql.execute(f"CREATE TABLE {database}.{name} (id int PRIMARY KEY)")
        mysql.execute(f"INSERT INTO {database}.{name} VALUES (1)")
    checkpoint, target = tmp_path / "checkpoint", tmp_path / "rows"
    run_to_end(spark, mysql_options(mysql, f"{database}.one"), checkpoint, target)
    with pytest.raises(StreamingQueryException, match="belongs to a stream of other tables"):
        run_to_end(spark, mysql_options(mysql, f"{database}.two"), checkpoint, target)
    other = mysql_options(mysql, f"{database}.one", shape="envelope")
    with pytest.raises(StreamingQueryException, match="belongs to a stream of shape `row`"):
        run_to_end(spark, other, checkpoint, target)
    run_to_end(spark, mysql_options(mysql, f"{database}.one"), checkpoint, target)
    assert spark.read.parquet(str(target)).count() == 1


def _read_all(query):
    """Wait until all is read that was committed before the call.

    A trigger that was looking for data when `processAllAvailable` began may end its wait.
    """
    query.processAllAvailable()
    query.processAllAvailable()


def test_table_made_later_does_not_join_a_stream_of_one_table(mysql, database, spark, tmp_path):
    """Its name matches the pattern; its rows would come with the first table's columns."""
    mysql.execute(
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v int)", f"INSERT INTO {database}.t VALUES (1, 1)"
    )
    checkpoint, target = tmp_path / "checkpoint", tmp_path / "rows"
    stream = spark.readStream.format("tailrace").options(**mysql_options(mysql, f"{database}.t.*")).load()
    writer = stream.writeStream.format("parquet").option("path", str(target))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        _read_all(query)
        mysql.execute(
            f"CREATE TABLE {database}.t2 (id int PRIMARY KEY)",
            f"INSERT INTO {database}.t2 VALUES (5)",
            f"INSERT INTO {database}.t VALUES (2, 2)",
        )
        _read_all(query)
        reported = json.loads(query.lastProgress.json)["sources"][0]["latestOffset"]
        reported = json.loads(reported) if isinstance(reported, str) else reported
        assert set(reported["lag"]) == {"ms", "bytes", "files"}
    finally:
        query.stop()
    assert sorted(r.id for r in spark.read.parquet(str(target)).collect()) == [1, 2]
