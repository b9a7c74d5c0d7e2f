"""Run the AUTO CDC example twice in one process and print its table: run by a Python with Spark Connect.

The catalog is Spark's own for tests, whose tables live as long as the JVM. Arguments: the example's
directory, a directory for checkpoints, the catalog's jar. Between the two runs a line is read from standard
input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import (
    create_dataflow_graph,
    handle_pipeline_events,
    start_run,
)
from pyspark.sql import SparkSession

CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"


def run(spark: SparkSession, example: Path, storage: Path) -> list[dict]:
    """Do the same as `spark-pipelines run`, in this process; returns the table's rows."""
    file = example / "spark-pipeline.yml"
    spec = load_pipeline_spec(file)
    graph = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf={}
    )
    registry = SparkConnectGraphElementRegistry(spark, graph)
    register_definitions(file, registry, spec, spark, graph)
    events = start_run(
        spark,
        graph,
        full_refresh=[],
        full_refresh_all=False,
        refresh=[],
        dry=False,
        storage=storage.as_uri(),
    )
    handle_pipeline_events(events)
    rows = spark.table("lake.shop.orders").orderBy("id").toArrow().to_pylist()
    return [{name: value for name, value in row.items() if not name.startswith("__")} for row in rows]


def main() -> None:
    """Two runs; each prints a line of JSON that begins with `ROWS`."""
    example, storage, jar = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.catalog.lake", CATALOG)
    builder = builder.config("spark.jars", jar).config("spark.driver.extraClassPath", jar)
    builder = builder.config("spark.python.authenticate.socketTimeout", "120s")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
        for _ in range(2):
            sys.stdout.write(f"ROWS {json.dumps(run(spark, example, storage), default=str)}\n")
            sys.stdout.flush()
            sys.stdin.readline()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
