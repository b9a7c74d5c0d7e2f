"""A stream in Spark code on Spark 4.1, run by the Python of an environment of its own.

    first    no `checkpointPath`; then read until the process dies within the third batch
    second   go on; then, with another checkpoint's path, be refused; then go on with the right one

Prints a line `RESULT <json>` for each query.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pymysql
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tailrace.spark.session import spark_session, stop_session
from tailrace.spark.task_errors import parse_error

_run, _directory, _port, _user, _password, _database = sys.argv[1:]
HOME = Path(_directory)
OPTIONS = {
    "url": f"mysql://127.0.0.1:{_port}",
    "user": _user,
    "password": _password,
    "tables": f"{_database}.t",
    "snapshotChunkRows": "100",
    "maxRowsPerTrigger": "150",
}
#: How long a query that has just begun may take to see what the log has.
PATIENCE_S = 120
session = spark_session("spark-4.1", master="local[2,4]", log_file=HOME / "log")


def query(dies_in: int | None = None, changes: int = 0, **options: str) -> None:
    """Read what there is, which has so many changes of the log."""
    read = 0

    def write(frame: DataFrame, batch: int) -> None:
        nonlocal read
        frame.write.mode("overwrite").parquet(f"{HOME}/batches/batch={batch}")
        read += frame.where("_op != 'r'").count()
        if batch == dies_in:
            os._exit(9)

    stream = session.readStream.format("tailrace").options(**OPTIONS, **options).load()
    running = (
        stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{HOME}/checkpoint").start()
    )
    result: dict[str, Any] = {}
    try:
        running.processAllAvailable()
        until = time.monotonic() + PATIENCE_S
        while read < changes and time.monotonic() < until:
            running.processAllAvailable()
    except StreamingQueryException as failure:
        error = parse_error(str(failure))
        result["code"] = str(failure) if error is None else error.code
    running.stop()
    result["committed"] = len(list(HOME.glob("checkpoint/commits/[0-9]*")))
    print("RESULT", json.dumps(result), flush=True)  # noqa: T201


OWN = {"checkpointPath": f"{HOME}/checkpoint"}
if _run == "first":
    query()
    query(dies_in=2, **OWN)
query(**OWN)
connection = pymysql.connect(
    host="127.0.0.1", port=int(_port), user=_user, password=_password, autocommit=True
)
with connection, connection.cursor() as cursor:
    cursor.execute(f"UPDATE {_database}.t SET v = v + 1 WHERE id <= 400")
    cursor.execute(f"DELETE FROM {_database}.t WHERE id > 690")
query(checkpointPath=f"{HOME}/other")
query(**OWN)
numbers = sorted(int(path.name) for path in HOME.glob("checkpoint/offsets/[0-9]*"))
(HOME / "checkpoint" / "offsets" / str(numbers[-1])).unlink()
query(changes=410, **OWN)
stop_session(session)
