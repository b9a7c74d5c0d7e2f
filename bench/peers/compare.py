"""Debezium's messages and Tailrace's of the same changes on the same server, compared field by field.

Both read the same tables first and the same log then; messages are paired by topic, in their order:

    rows are there -> Debezium: snapshot        -> Tailrace: snapshot
                   -> changes
                   -> Debezium: reads the log   -> Tailrace: reads the log

What may differ is in ALLOWED, each entry with its reason; all else is a difference, and so is an entry that
nothing needs. The documentation's table is made of them (`bench.peers.differences`). Numbers are compared as
they are written (`1.0E10` is not `10000000000.0`); the order of fields counts too.

`python -m bench.peers.compare` prints them, on a server of its own, and ends with 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from bench import spark_runs
from bench.data import execute
from bench.peers import workload
from bench.peers.peers import DEBEZIUM_JSON, Peer
from bench.peers.watch import PeerFailedError, started
from bench.servers import Server, running

DATABASE = "tailrace_compare"
PREFIX = "bench"

#: One table after the other: the order of messages is compared.
_DEBEZIUM = {"snapshot.max.threads": "1"}
#: Debezium has them by default.
_TAILRACE = {"extended.headers.enabled": "true"}


@dataclass(frozen=True)
class Allowed:
    """A difference that may be.

    Args:
        path: regular expression of the field.
        subject: what differs, for the documentation.
        reason: how and why.
        topic: regular expression of the table.
        snapshot: only in rows of a snapshot.
        near: whether the two values, Debezium's first, are near enough; by default all are.
        mode: property of Debezium's and its value with which it may differ; None: with any.
    """

    path: str
    subject: str
    reason: str
    topic: str = ".*"
    snapshot: bool = False
    near: Callable[[Any, Any], bool] = lambda _theirs, _ours: True
    mode: tuple[str, str] | None = None

    def covers(self, difference: Difference) -> bool:
        """Whether it may differ so."""
        return (
            re.fullmatch(self.path, difference.path) is not None
            and re.fullmatch(self.topic, difference.topic) is not None
            and (not self.snapshot or difference.op == "r")
            and self.near(difference.theirs, difference.ours)
        )


def _same_document(theirs: Any, ours: Any) -> bool:
    try:
        return bool(_plain(json.loads(theirs)) == _plain(json.loads(ours)))
    except (TypeError, ValueError):
        return False


def _is_uuid(text: Any) -> bool:
    return (
        isinstance(text, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None
    )


def _plain(document: Any) -> Any:
    """A document whose times have no zeros at the end of their fraction."""
    if isinstance(document, dict):
        return {name: _plain(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_plain(value) for value in document]
    if isinstance(document, str):
        return re.sub(r"(:\d\d)\.(\d*?)0+$", lambda m: f"{m[1]}.{m[2]}" if m[2] else m[1], document)
    return document


IMAGE = r"value\.(before|after)\."
FIELDS = r"schemas\.value\.fields\[(before|after)\]\.fields"
#: What both databases' messages may differ in.
COMMON = (
    Allowed(r"value\.ts_(ms|us|ns)", "`ts_ms`, `ts_us`, `ts_ns`", "when each made its message"),
    Allowed(r"value\.source\.version", "`source.version`", "each has its own version"),
    Allowed(
        r"value\.source\.ts_(ms|us|ns)",
        "`source.ts_ms` of a snapshot",
        "when each read the rows",
        snapshot=True,
    ),
    Allowed(
        r"value\.source\.snapshot",
        "`source.snapshot`",
        "Debezium marks the first and last row of a table; they are not known beside a running log: `true`",
        snapshot=True,
        near=lambda theirs, ours: theirs.startswith(("first", "last")) and ours == "true",
    ),
    Allowed(
        r"headers\[\d\]\[1\](\.payload)?",
        "header `__debezium.context.runId`",
        "each run has its own",
        near=lambda theirs, ours: _is_uuid(theirs) and _is_uuid(ours),
    ),
    Allowed(
        FIELDS + r"\[\w+\]\.default \(field\)",
        "column defaults in schemas",
        "none: the log does not have them, and the catalog has those of today, so that a repeated batch "
        "could carry another schema than before",
        near=lambda theirs, _ours: theirs,
    ),
    Allowed(
        IMAGE + "maybe",
        "NULL in a column that has a default",
        "null: Connect's converter writes the default in its place (`replace.null.with.default`), so that a "
        "consumer cannot tell them apart",
        near=lambda theirs, ours: theirs == 5 and ours is None,
    ),
)
ALLOWED = (
    *COMMON,
    Allowed(
        IMAGE + "instant.",
        "TIMESTAMP(n) with trailing zeros",
        "Debezium's snapshot omits the zeros, its log does not: the log's form is used for both",
        snapshot=True,
        near=lambda theirs, ours: re.sub(r"0+Z$", "Z", ours) == theirs,
    ),
    Allowed(
        IMAGE + "document",
        "JSON",
        "Debezium's snapshot has the server's text; its log has no spaces, all digits of doubles and times "
        "without trailing zeros: the server's text is used for both",
        near=_same_document,
    ),
    Allowed(
        IMAGE + rf"one|{FIELDS}\[one\]\.parameters\.allowed",
        "ENUM label with a comma",
        "Debezium's DDL parser leaves its own backslash before the comma; there is none here",
        near=lambda theirs, ours: theirs.replace("\\,", ",") == ours,
    ),
    Allowed(
        IMAGE + "made_year",
        "YEAR 0000",
        "2000 in Debezium's snapshot and 1900 in its log: 0",
        near=lambda theirs, ours: theirs in (1900, 2000) and ours == 0,
    ),
    Allowed(
        IMAGE + "rounded",
        "FLOAT(M,D), value",
        "a double in Debezium, which parses DDL (`0.10000000149011612`); a float, like every FLOAT (`0.1`): "
        "the log does not distinguish the two",
        near=lambda theirs, ours: np.float32(theirs) == np.float32(ours),
    ),
    Allowed(
        FIELDS + r"\[rounded\]\.type",
        "FLOAT(M,D), schema",
        "likewise `double` in Debezium, `float` here",
        near=lambda theirs, ours: (theirs, ours) == ("double", "float"),
    ),
)
_PATIENCE_S = 120


class _Number(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


@dataclass(frozen=True)
class Message:
    """A message, parsed.

    Args:
        topic: its topic.
        key, value: JSON; None for none.
        headers: names and values.
        schemas: of key and value, where they carry them.
    """

    topic: str
    key: Any
    value: Any
    headers: Any
    schemas: Any

    @property
    def op(self) -> str:
        """`c`, `u`, `d`, `r`, or `tombstone`."""
        return "tombstone" if self.value is None else str(self.value["op"])


@dataclass(frozen=True)
class Difference:
    """One field that is not equal; of a missing message the field is `(message)`."""

    topic: str
    op: str
    path: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        values = f"Debezium {_short(self.theirs)}, Tailrace {_short(self.ours)}"
        return f"{self.topic} {self.op} {self.path}: {values}"


def compare(
    server: Server,
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
    connection = server.connect()
    execute(
        connection, f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}"
    )
    execute(connection, "SET sql_mode = ''", *workload.definitions(), *workload.rows())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (DATABASE,)
        )
        present = 0
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT COUNT(*) FROM {name}")
            present += cursor.fetchall()[0][0]
    enabled = str(schemas).lower()
    options = server.options("", "debezium", topicPrefix=PREFIX, schemasEnable=enabled)
    options |= {**_TAILRACE, **(tailrace or {}), "tables": rf"{DATABASE}\..*"}
    converters = {f"{part}.converter.schemas.enable": enabled for part in ("key", "value", "header")}
    properties = {**_DEBEZIUM, **converters, **(debezium or {})}
    task = {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": server.password,
        "database": DATABASE,
        "tables": rf"{DATABASE}\..*",
        "serverId": str(0x7FFD_0000),
    }
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = str(Path(scratch) / "checkpoint")
        with debezium_messages(DEBEZIUM_JSON, task, properties, Path(scratch)) as peer:
            theirs = peer.until(lambda messages: len(messages) >= present)
            ours = tailrace_messages(spark, options, checkpoint)
            execute(connection, *workload.changes())
            end = f"{PREFIX}.{DATABASE}.{workload.END}"
            theirs = peer.until(lambda messages: messages[-1].topic == end)
            ours += tailrace_messages(spark, options, checkpoint)
    execute(connection, f"DROP DATABASE {DATABASE}")
    connection.close()
    return differences(theirs, ours)


def differences(
    theirs: Sequence[Message], ours: Sequence[Message], allowed: Sequence[Allowed] = ALLOWED
) -> list[Difference]:
    """What differs and is not allowed to; with schemas, also each rule that covers nothing."""
    found = []
    by_topic = _by_topic(theirs), _by_topic(ours)
    for topic in sorted({*by_topic[0], *by_topic[1]}):
        left, right = (messages[topic] for messages in by_topic)
        for n in range(max(len(left), len(right))):
            a = left[n] if n < len(left) else None
            b = right[n] if n < len(right) else None
            name = topic.rpartition(".")[2]
            if a is None or b is None:
                op = next(m.op for m in (a, b) if m is not None)
                found.append(Difference(name, op, "(message)", a and a.value, b and b.value))
                continue
            found += [
                Difference(name, a.op, path, x, y)
                for part in ("key", "value", "headers", "schemas")
                for path, x, y in _unequal(part, getattr(a, part), getattr(b, part))
            ]
    left, used = [], set()
    for difference in found:
        rule = next((rule for rule in allowed if rule.covers(difference)), None)
        if rule is None:
            left.append(difference)
        else:
            used.add(rule)
    if any(message.schemas for message in theirs):
        names = {topic.rpartition(".")[2] for topic in by_topic[0]}
        present = (rule for rule in allowed if any(re.fullmatch(rule.topic, name) for name in names))
        left += [Difference(rule.subject, "-", "(rule)", None, None) for rule in present if rule not in used]
    return left


def _unequal(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            if name not in theirs or name not in ours:
                yield f"{path}.{name} (field)", name in theirs, name in ours
            else:
                yield from _unequal(f"{path}.{name}", theirs[name], ours[name])
        if list(theirs) != list(ours) and set(theirs) == set(ours):
            yield f"{path} (order of fields)", list(theirs), list(ours)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for n, (x, y) in enumerate(zip(theirs, ours, strict=True)):
            name = x["field"] if isinstance(x, dict) and "field" in x else n
            yield from _unequal(f"{path}[{name}]", x, y)
    elif type(theirs) is not type(ours) or theirs != ours:
        yield path, theirs, ours


def _by_topic(messages: Sequence[Message]) -> dict[str, list[Message]]:
    grouped: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        grouped[message.topic].append(message)
    return grouped


# ---- Debezium ----


class _Debezium:
    """A running engine that writes its messages to a file."""

    def __init__(self, process: subprocess.Popen[str], output: Path, log: Path) -> None:
        self._process = process
        self._output = output
        self._log = log

    def until(self, done: Any) -> list[Message]:
        """The messages so far, once there are some and `done` says that they are enough.

        Raises:
            PeerFailedError: the engine ended, or it took too long.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            text = self._output.read_text(encoding="utf-8") if self._output.exists() else ""
            messages = [_of_debezium(line) for line in text.split("\n")[:-1]]
            if messages and done(messages):
                return messages
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(encoding="utf-8", errors="replace")
                raise PeerFailedError(
                    f"Debezium came to {len(messages)} messages, and said: ...{said[-2000:]}"
                )
            time.sleep(0.1)


@contextmanager
def debezium_messages(
    peer: Peer, task: Mapping[str, str], properties: Mapping[str, str], scratch: Path
) -> Iterator[_Debezium]:
    """A running engine, whose messages can be waited for.

    Args:
        peer: the engine, writing JSON.
        task: where it reads.
        properties: further properties of its connector.
        scratch: a directory of its own.
    """
    output, log = scratch / "messages", scratch / "log"
    whole = {
        **task,
        "expected": str(1 << 62),
        "directory": str(scratch),
        "output": str(output),
        **{f"debezium.{name}": value for name, value in properties.items()},
        **peer.task,
    }
    with started(peer.command(), whole, log) as process:
        yield _Debezium(process, output, log)


def _of_debezium(line: str) -> Message:
    return _message(*_parse(line))


# ---- Tailrace ----


def tailrace_messages(spark: SparkSession, options: Mapping[str, str], checkpoint: str) -> list[Message]:
    """What there is since the checkpoint."""
    found: list[Message] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(_of_tailrace(row) for row in batch.collect())

    frame = spark.readStream.format("tailrace").options(**options).load()
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def _of_tailrace(row: Any) -> Message:
    key, value = (None if part is None else _parse(bytes(part).decode()) for part in (row.key, row.value))
    headers = [[header.key, _parse(bytes(header.value).decode())] for header in row.headers or ()]
    return _message(row.topic, key, value, headers)


def _message(topic: str, key: Any, value: Any, headers: Any) -> Message:
    if isinstance(value or key, dict) and set(value or key) == {"schema", "payload"}:
        schemas = {"key": key and key["schema"], "value": value and value["schema"]}
        return Message(topic, key and key["payload"], value and value["payload"], headers, schemas)
    return Message(topic, key, value, headers, None)


def _parse(text: str) -> Any:
    return json.loads(text, parse_float=_Number)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 160 else f"{text[:150]}... ({len(text)} characters)"


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def main() -> int:
    """Compare, print; 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.compare", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--url", help="mysql://user:password@host:port of a server to use, its database is dropped"
    )
    parser.add_argument("--port", type=int, help="of the new server (a free one)")
    parser.add_argument("--schemas", action="store_true", help="compare the messages' schemas too")
    for name, of in (
        ("debezium", "a property of Debezium's connector"),
        ("tailrace", "an option of Tailrace"),
    ):
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="NAME=VALUE", help=of)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, running(given.url, given.port) as server:
        spark = spark_runs.session(Path(scratch))
        found = compare(
            server,
            spark,
            schemas=given.schemas,
            debezium=_pairs(given.debezium),
            tailrace=_pairs(given.tailrace),
        )
        spark.stop()
    kinds = {(difference.topic, difference.op, difference.path): difference for difference in found}
    for difference in kinds.values():
        print(difference)
    print(f"{len(found)} differences of {len(kinds)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
