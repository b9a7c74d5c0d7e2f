"""A table's snapshot into OpenSearch and ClickHouse, beside a raw load of the same rows by the same machine.

    python -m bench.documents [rows] [--clickhouse http://HOST:PORT]

The raw load is the limit: the rows that the sink has written are read back, put into requests beforehand, and
sent again into a target with the same fields and settings, by as many threads as Spark has tasks. Its time
is that of the requests alone. The ratio says what of the limit the sink reaches, with reading the source,
encoding and Spark on the same two cores.

Without `--clickhouse` it is ClickHouse's engine behind the HTTP server of the tests, which runs one statement
at a time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import spark_runs
from bench.report import Figure, show
from bench.servers import Server
from tailrace.config.model import RouteRule
from tailrace.config.sinks import ClickHouseSettings, OpenSearchSettings, WriteMode
from tailrace.sinks.base import Sink
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.log_sink import ClickHouseLogSink
from tailrace.sinks.clickhouse.sink import ClickHouseSink
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.sink import OpenSearchSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import start_opensearch
from tests.support.clickhouse import ClickHouse

_REQUEST_BYTES, _INSERT_ROWS = 5 << 20, 100_000
_ROUTER = Router([RouteRule(r".*\.items", "bench.items")])
#: Settings of the bench's indices: one node has no replicas, and shards are written in parallel.
_INDEX = {"number_of_replicas": "0", "number_of_shards": str(spark_runs.TASKS)}


def measure(source: Server, spark: SparkSession, rows: int, clickhouse: str | None) -> Iterator[Figure]:
    """The figures of each sink; `items` has `rows` rows."""
    with start_opensearch() as node:
        settings = OpenSearchSettings(node.url, index_settings=_INDEX)
        yield from _pair(
            "OpenSearch", lambda: OpenSearchSink(settings, _ROUTER), source, spark, rows, _bulk_load(node.url)
        )
    with tempfile.TemporaryDirectory() as directory, ClickHouse(Path(directory)) as engine:
        url = clickhouse or f"http://127.0.0.1:{engine.port}"
        upsert = ClickHouseSettings(url, database="bench")
        log = ClickHouseSettings(url, mode=WriteMode.CHANGELOG, database="bench")
        made: tuple[tuple[str, Callable[[], Sink]], ...] = (
            ("ClickHouse, upsert", lambda: ClickHouseSink(upsert, _ROUTER)),
            ("ClickHouse, changelog", lambda: ClickHouseLogSink(log, _ROUTER)),
        )
        for name, open_ in made:
            yield from _pair(name, open_, source, spark, rows, _inserts(upsert))
            with closing(ClickHouseClient(upsert)) as client:
                client.run("DROP DATABASE bench")


def _pair(  # noqa: PLR0917
    name: str,
    open_: Callable[[], Sink],
    source: Server,
    spark: SparkSession,
    rows: int,
    raw: Callable[[int], float],
) -> Iterator[Figure]:
    """What the sink reaches, and the limit."""
    run = _run(source, spark, open_)
    rate, limit = rows / run.stream_s, rows / raw(rows)
    section = f"{name}, snapshot, {rows:,} rows"
    yield Figure(section, "raw load (the limit)", limit, "rows/s", system="")
    yield Figure(
        section,
        "sink (÷ the limit)",
        rate,
        "rows/s",
        ratio=rate / limit,
        cpu_s=dict(run.usage.cpu_s),
        peak_rss_mb=dict(run.usage.peak_rss_mb),
        notes={"batches": run.batches, "phases_s": dict(run.phases_s)},
    )


def _run(source: Server, spark: SparkSession, open_: Callable[[], Sink]) -> spark_runs.Run:
    with closing(open_()) as sink, tempfile.TemporaryDirectory() as checkpoint:
        return spark_runs.into_sink(spark, source.options("items", "cells"), sink, Path(checkpoint))


def _bulk_load(url: str) -> Callable[[int], float]:
    """The seconds of requests that write all documents of the sink's index into another one."""

    def load(rows: int) -> float:
        client = OpenSearchClient((url,))
        made = client.request("GET", "/bench.items").body["bench.items-tailrace"]
        client.request("POST", "/bench.items/_refresh")
        index = {"settings": {"index": _INDEX}, "mappings": made["mappings"]}
        client.request("PUT", "/raw", index)
        bodies, lines, size, count = [], list[bytes](), 0, 0
        for hit in _hits(client):
            action = {"index": {"_id": hit["_id"], "version": 1, "version_type": "external"}}
            line = f"{json.dumps(action)}\n{json.dumps(hit['_source'])}\n".encode()
            lines.append(line)
            size, count = size + len(line), count + 1
            if size >= _REQUEST_BYTES:
                bodies.append(b"".join(lines))
                lines, size = [], 0
        bodies.append(b"".join(lines))
        assert count == rows, f"{count} of {rows} documents"
        parts = urlsplit(url)

        def send(shares: Sequence[bytes]) -> None:
            with closing(HTTPConnection(str(parts.hostname), parts.port or 9200)) as connection:
                for body in filter(None, shares):
                    headers = {"Content-Type": "application/x-ndjson"}
                    connection.request("POST", "/raw/_bulk?filter_path=errors", body, headers)
                    answer = json.loads(connection.getresponse().read())
                    assert not answer["errors"]

        return _timed(send, bodies)

    return load


def _hits(client: OpenSearchClient) -> Iterator[dict[str, Any]]:
    body = {"size": 5000, "sort": ["_doc"]}
    answer = client.request("POST", "/bench.items/_search?scroll=5m", body).body
    while answer["hits"]["hits"]:
        yield from answer["hits"]["hits"]
        position = {"scroll": "5m", "scroll_id": answer["_scroll_id"]}
        answer = client.request("POST", "/_search/scroll", position).body
    client.request("DELETE", "/_search/scroll", {"scroll_id": [answer["_scroll_id"]]})


def _inserts(settings: ClickHouseSettings) -> Callable[[int], float]:
    """The seconds of INSERTs of all rows of the sink's table into another one."""

    def load(rows: int) -> float:
        with closing(ClickHouseClient(settings)) as client:
            client.run("DROP TABLE IF EXISTS bench.raw")
            client.run("CREATE TABLE bench.raw AS bench.items")
            held = client.select("SELECT * FROM bench.items").combine_chunks()
        assert held.num_rows == rows, f"{held.num_rows} of {rows} rows"

        def send(shares: Sequence[pa.Table]) -> None:
            with closing(ClickHouseClient(settings)) as client:
                for part in shares:
                    client.insert("bench.raw", part)

        return _timed(send, [held.slice(n, _INSERT_ROWS) for n in range(0, rows, _INSERT_ROWS)])

    return load


def _timed(send: Callable[[Sequence[Any]], None], requests: Sequence[Any]) -> float:
    """The seconds that all requests take, by as many threads as Spark has tasks."""
    shares = [requests[n :: spark_runs.TASKS] for n in range(spark_runs.TASKS)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(spark_runs.TASKS) as pool:
        list(pool.map(send, shares))
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.documents", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--clickhouse", help="the HTTP interface of a server to use instead of the engine")
    given = parser.parse_args()
    with spark_runs.with_items(given.rows) as (source, spark):
        for figure in measure(source, spark, given.rows, given.clickhouse):
            show(figure)


if __name__ == "__main__":
    main()
