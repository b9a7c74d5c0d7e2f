"""A client of Spark Connect that reads a stream and a table, by a Python that has no Tailrace.

Prints `RESULT <json>`: what it has read, and what it is shown of the plans.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys

from pyspark.sql import SparkSession

_remote, _directory, _options = sys.argv[1:]
assert importlib.util.find_spec("tailrace") is None
spark = SparkSession.builder.remote(_remote).getOrCreate()
options = json.loads(_options)
stream = spark.readStream.format("tailrace").options(**options).load()
writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{_directory}/checkpoint")
query = writer.option("path", f"{_directory}/rows").start()
query.processAllAvailable()
table = spark.read.format("tailrace").options(**options).load()
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    query.explain(True)
    table.explain(True)
    print(query.lastProgress)  # noqa: T201
query.stop()
result = {
    "changes": sorted(
        [r["id"], r["v"], r["_op"]] for r in spark.read.parquet(f"{_directory}/rows").collect()
    ),
    "rows": sorted([r["id"], r["v"]] for r in table.collect()),
    "shown": shown.getvalue(),
}
spark.stop()
print("RESULT", json.dumps(result))  # noqa: T201
