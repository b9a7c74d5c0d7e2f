"""Debezium's own transforms and converters, applied to our messages: `java/Plugins.java`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peers import DEBEZIUM_VERSION
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.java import java
from tailrace.model.change import ChangeBatch
from tailrace.spark.jars import cached_jars

JAVA = Path(__file__).parent / "java"

#: Topic, key, value and headers; an empty text is null.
Message = tuple[str, str, str, tuple[tuple[str, str], ...]]


def debezium_jars(connector: str = "mysql") -> list[Path]:
    """The jars of a connector, those that `bench.peers` has."""
    name = "peer-debezium" if connector == "mysql" else "peer-debezium-postgres"
    packages = [
        f"io.debezium:{artifact}:{DEBEZIUM_VERSION}"
        for artifact in ("debezium-api", "debezium-embedded", f"debezium-connector-{connector}")
    ]
    return cached_jars(f"{name}-{DEBEZIUM_VERSION}", packages, pinned=False)


def run_java(program: str, jars: Sequence[Path], arguments: Sequence[str] = (), text: str = "") -> str:
    """What a program of one file prints: Java compiles and runs it."""
    path = os.pathsep.join(map(str, jars))
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", path, str(JAVA / program), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def by_debezium(
    messages: Sequence[Message], settings: Mapping[str, str], connector: str = "mysql"
) -> list[Message]:
    """What a transform and a converter make of messages with schemas."""
    lines = "\n".join("\t".join(message[:3]) for message in messages)
    made = run_java(
        "Plugins.java", debezium_jars(connector), [f"{n}={v}" for n, v in settings.items()], lines
    )
    rows = [line.split("\t") for line in made.split("\n")[:-1]]
    return [(r[0], r[1], r[2], tuple(_header(text) for text in r[3:])) for r in rows]


def of_batch(table_format: DebeziumFormat, batch: ChangeBatch, now_ms: int) -> list[Message]:
    """A batch's messages with schemas, with their tombstones."""
    return as_messages(table_format.to_messages(batch, now_ms))


def as_messages(made) -> list[Message]:
    """Messages of a record batch."""
    return [
        (
            m["topic"],
            (m["key"] or b"").decode(),
            (m["value"] or b"").decode(),
            tuple((h["key"], (h["value"] or b"").decode()) for h in m["headers"] or ()),
        )
        for m in made.to_pylist()
    ]


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
