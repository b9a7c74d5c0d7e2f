"""Debezium's messages and Tailrace's of the same changes on the same PostgreSQL server, field by field.

As `compare` does it for MySQL. Both read one publication, each by a slot of its own.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.peers import workload_postgres as workload
from bench.peers.compare import (
    COMMON,
    FIELDS,
    IMAGE,
    PREFIX,
    Allowed,
    Difference,
    debezium_messages,
    differences,
    tailrace_messages,
)
from bench.peers.peers import DEBEZIUM_POSTGRES_JSON
from tailrace.formats.connect.postgres import PLACEHOLDER
from tailrace_dev.servers.postgres import PostgresServer

DATABASE = "tailrace_compare"
_PUBLICATION = "compared"
#: Tailrace writes a logical message where a stream begins, which it does not capture.
_DEBEZIUM = {
    "snapshot.max.threads": "1",
    "time.precision.mode": "adaptive_time_microseconds",
    "message.prefix.exclude.list": "tailrace",
}
_TAILRACE = {"extended.headers.enabled": "true"}


#: The placeholder of an unchanged TOAST value of bytea.
_RAW = base64.b64encode(PLACEHOLDER.encode()).decode()


def _run_aside(header: Any) -> Any:
    return "run" if header[0] == "__debezium.context.runId" else header


def _same_without_own(theirs: Any, ours: Any) -> bool:
    """Whether headers are equal but for those that only Tailrace has."""
    shared = [header for header in ours if not header[0].startswith("__tailrace.")]
    return [_run_aside(header) for header in theirs] == [_run_aside(header) for header in shared]


ALLOWED: tuple[Allowed, ...] = (
    *COMMON,
    Allowed(
        IMAGE + r"\w+ \(field\)|" + FIELDS,
        "types that Debezium does not know: box, circle, line, lseg, path, polygon, multiranges, tsquery, "
        "pg_lsn, composites, arrays of money, interval, name",
        "Debezium omits such a column (`include.unknown.datatypes`); it is here, as text or a list",
        topic="others",
        near=lambda theirs, ours: not theirs or all(field in ours for field in theirs),
    ),
    Allowed(
        r"headers",
        "headers `__tailrace.absent.before` and `.after`",
        "not in Debezium: they name the columns that the log omits, of which it gives no sign",
        near=_same_without_own,
    ),
    Allowed(
        r"value\.source\.sequence",
        "`source.sequence`",
        "the LSN of the transaction's own commit; Debezium has that of the last commit it saw, which a "
        "repeated batch cannot know",
    ),
    Allowed(
        r"value\.source\.(txId|lsn)",
        "`source.txId`, `source.lsn` of a snapshot",
        "those of each one's own session in Debezium; here null, and the LSN at which the rows were read",
        snapshot=True,
    ),
    Allowed(
        r"(key|headers|schemas\.key).*",
        "key with REPLICA IDENTITY USING INDEX",
        "the columns of the index. Debezium takes those of the primary key, which the log lacks for deleted "
        "rows, so that it writes every delete with the key 0",
        topic="by_index",
    ),
    Allowed(
        IMAGE + "day",
        "date B.C.",
        "Debezium's snapshot loses the era",
        topic="far",
        snapshot=True,
        near=lambda theirs, ours: (theirs, ours) == (-703383, -735160),
    ),
    Allowed(
        IMAGE + "feelings",
        "array of an enum with a NULL in it",
        "null in Debezium, the whole array; here the array",
        near=lambda theirs, ours: theirs is None and ours == [None],
    ),
    Allowed(
        FIELDS + r"\[feelings\]\.items\.optional",
        "array of an enum, schema",
        "likewise: its elements may be null here",
        near=lambda theirs, ours: (theirs, ours) == (False, True),
    ),
    Allowed(
        IMAGE + r"rounded|" + FIELDS + r"\[rounded\]\.parameters\..*",
        "numeric with a negative scale",
        "Debezium takes -2 as 2046 and writes a number of 2,000 zeros; here the number, with scale 0",
    ),
    Allowed(
        FIELDS + r"\[tiny\]\.parameters\.connect\.decimal\.precision",
        "numeric with a scale above its precision, schema",
        "the precision is the scale, because Avro refuses a greater scale",
        near=lambda theirs, ours: (theirs, ours) == ("3", "5"),
    ),
    Allowed(
        FIELDS + r"\[cash\]\.parameters\.connect\.decimal\.precision \(field\)",
        "`money`, schema",
        "has the parameter `connect.decimal.precision` (19), which Avro needs",
        near=lambda theirs, ours: not theirs and ours,
    ),
    Allowed(
        FIELDS + r"\[embedding\]\.(items\.type|name)",
        "`vector`, schema",
        "`FloatVector`: pgvector stores 32-bit numbers; Debezium has `DoubleVector` of the same numbers",
        topic="vectors",
        near=lambda theirs, ours: theirs.replace("Double", "Float").replace("double", "float") == ours,
    ),
    Allowed(
        IMAGE + "title",
        "`name`",
        "null in Debezium's log, the value in its snapshot; here the value",
        near=lambda theirs, ours: theirs is None and ours is not None,
    ),
    Allowed(
        IMAGE + r"sparse|" + FIELDS + r"\[sparse\]\..*",
        "`sparsevec`",
        "a struct with a map in Debezium; here the server's text, in JSON, Avro and Protobuf alike",
        topic="vectors",
    ),
    Allowed(
        IMAGE + "raws?",
        "unchanged TOAST value of bytea or bytea[], `binary.handling.mode` `base64`",
        "null in Debezium; here the placeholder in base64, as with `bytes`",
        topic="large",
        near=lambda theirs, ours: theirs is None and ours in (_RAW, [_RAW]),
        mode=("binary.handling.mode", "base64"),
    ),
)


def compare(
    server: PostgresServer,
    spark: SparkSession,
    *,
    schemas: bool = False,
    debezium: Mapping[str, str] | None = None,
    tailrace: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Run the workload through both.

    Args:
        server: where the database is made anew.
        spark: the session Tailrace runs in.
        schemas: whether messages carry schemas, which are compared too.
        debezium: further properties of Debezium's connector.
        tailrace: further options of Tailrace, which should mean the same.

    Raises:
        PeerFailedError: Debezium did not come to the end.
        toolkit.UnavailableError: Debezium cannot run here.
    """
    server.drop_database(DATABASE)
    server.execute(f"CREATE DATABASE {DATABASE}")
    available = {name for (name,) in server.execute("SELECT name FROM pg_available_extensions")}
    extensions = [name for name in workload.EXTENSIONS if name in available]
    server.execute(
        *workload.definitions(extensions),
        f"CREATE PUBLICATION {_PUBLICATION} FOR ALL TABLES",
        *workload.rows(extensions),
        database=DATABASE,
    )
    query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    tables = [name for (name,) in server.execute(query, database=DATABASE)]
    present = sum(server.execute(f"SELECT count(*) FROM {name}", database=DATABASE)[0][0] for name in tables)
    enabled = str(schemas).lower()
    options = {
        "url": f"postgresql://{server.host}:{server.port}/{DATABASE}",
        "user": server.user,
        "password": server.password,
        "tlsMode": "disabled",
        "tables": r"public\..*",
        "shape": "debezium",
        "slotName": "tailrace_compare",
        "publicationName": _PUBLICATION,
        "topicPrefix": PREFIX,
        "schemasEnable": enabled,
        **_TAILRACE,
        **(tailrace or {}),
    }
    converters = {f"{part}.converter.schemas.enable": enabled for part in ("key", "value", "header")}
    task = {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": server.password,
        "database": DATABASE,
        "tables": r"public\..*",
        "slot": "debezium_compare",
        "publication": _PUBLICATION,
        "snapshot": "initial",
    }
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = str(Path(scratch) / "checkpoint")
        properties = {**_DEBEZIUM, **converters, **(debezium or {})}
        with debezium_messages(DEBEZIUM_POSTGRES_JSON, task, properties, Path(scratch)) as peer:
            theirs = peer.until(lambda messages: len(messages) >= present)
            ours = tailrace_messages(spark, options, checkpoint)
            server.execute(*workload.changes(extensions), database=DATABASE)
            end = f"{PREFIX}.public.{workload.END}"
            theirs = peer.until(lambda messages: messages[-1].topic == end)
            ours += tailrace_messages(spark, options, checkpoint)
    server.drop_database(DATABASE)
    given = (debezium or {}).items()
    return differences(theirs, ours, [rule for rule in ALLOWED if rule.mode is None or rule.mode in given])
