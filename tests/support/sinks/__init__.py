"""The sinks of the contract suite: one row each.

A row is a function that takes pytest's `request` (for `tmp_path`, `spark`, servers) and returns a SinkCase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.sinks import (
    clickhouse,
    delta,
    duckdb,
    files,
    iceberg,
    kafka,
    nats,
    opensearch,
    rabbitmq,
    redis,
    replica,
    rocketmq,
    webhook,
)
from tests.support.sinks.case import SinkCase

CASES: dict[str, Callable[[Any], SinkCase]] = {
    "delta-upsert": delta.upsert,
    "delta-upsert-waiting": delta.upsert_with_changes_that_wait,
    "delta-scd2": delta.scd2,
    "delta-changelog": delta.changelog,
    "iceberg-upsert": iceberg.upsert,
    "iceberg-changelog": iceberg.changelog,
    "iceberg-rest": iceberg.rest,
    "iceberg-hive": iceberg.hive,
    "iceberg-glue": iceberg.glue,
    "parquet": files.parquet,
    "json": files.json_lines,
    "kafka": kafka.exactly_once,
    "kafka-at-least-once": kafka.at_least_once,
    "mysql": replica.mysql,
    "mariadb-whole-batch": replica.mariadb,
    "postgresql": replica.postgres,
    "postgresql-whole-batch": replica.postgres_whole_batch,
    "rocketmq": rocketmq.rocketmq,
    "redis": redis.redis,
    "nats": nats.nats,
    "rabbitmq": rabbitmq.rabbitmq,
    "webhook": webhook.webhook,
    "opensearch": opensearch.opensearch,
    "clickhouse": clickhouse.clickhouse,
    "clickhouse-changelog": clickhouse.changelog,
    "duckdb": duckdb.upsert,
    "duckdb-changelog": duckdb.changelog,
}
