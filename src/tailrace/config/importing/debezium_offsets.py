"""The position at which a connector stood, as a pipeline's `startingPosition`.

Files: what Kafka Connect answers to GET /connectors/NAME/offsets; an offset alone; the file of
FileOffsetBackingStore (Debezium Server, Kafka Connect standalone), which is a serialized java.util.HashMap of
byte arrays.

MySQL, MariaDB: `gtids` are the transactions that the connector has finished; `file` and `pos` are the begin
of the one in which it stood (`event` and `row` say how much of that one it had sent). The begin is that of
the transaction's BEGIN, behind its GTID event, so the start is the end of the transaction before.
PostgreSQL: `lsn_commit` is the end of the last transaction that it has finished. Logical decoding sends
transactions in the order of their commits, and those whose commit is after an LSN: a start at the LSN of a
change (`lsn_proc`, `lsn`) leaves out none that the connector has not sent.

So the changes of a half-sent transaction come again from its first one, and none is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import json_object
from tailrace.errors import ConfigError

_JAVA_STREAM = b"\xac\xed\x00\x05"
#: An array of bytes in Java's serialization: its class in full, or a reference to it, then its length.
#: Source: Java Object Serialization Specification, 6.4.2 (newArray, newClassDesc, prevObject).
_BYTE_ARRAY = re.compile(rb"\x75(?:\x72\x00\x02\[B.{8}.\x00\x00\x78\x70|\x71\x00\x7e..)(.{4})", re.DOTALL)


def start(made: Draft, content: bytes, prefix: str) -> None:
    """Let the pipeline begin where the connector stood.

    Args:
        made: the pipeline; its source is complete.
        content: the file of offsets.
        prefix: the connector's `topic.prefix`, which its offset names.

    Raises:
        ConfigError: the file has no offset of this connector, or none that a pipeline can begin at.
    """
    source = made.source
    offset = _of_connector(content, prefix)
    if _is_snapshot(offset):
        made.must_set(
            "source.starting-position",
            "the connector had not finished its first snapshot, and the pipeline reads one from the "
            "beginning, as it would have: rows that are in the topics come again",
        )
        return
    dialect = source["type"].value
    found = _postgres(made, offset) if dialect == "postgresql" else _mysql(offset)
    source["starting-position"] = DraftEntry(found, "the connector's offset")
    source.pop("snapshot-parallelism", None)
    if any(name.startswith("incremental_snapshot") and offset[name] for name in offset):
        made.miss("incremental snapshot", "it was not finished: send `execute-snapshot` again")
    if str(offset.get("snapshot")).lower() == "blocking":
        made.miss("blocking snapshot", "it may not be finished: send `execute-snapshot` again")
    parts = [f"{offset[name]} {name}s" for name in ("event", "row") if _number(offset.get(name))]
    half = f" It had sent part of a transaction ({', '.join(parts)}), which comes again." if parts else ""
    made.must_set(
        "the connector",
        f"stop it before the pipeline starts, and read its offset after it has stopped.{half}",
    )
    made.to_set = [note for note in made.to_set if note.name != "source.slot-name"]


def _of_connector(content: bytes, prefix: str) -> Mapping[str, Any]:
    found = [
        (partition, offset)
        for partition, offset in _offsets(content)
        if partition.get("server", prefix) == prefix
    ]
    if len(found) != 1:
        raise ConfigError(
            f"the file has {len(found)} offsets of the connector" if found else "no offset of the connector",
            f"looked for `server` `{prefix}`, which is its `topic.prefix`",
            "GET /connectors/NAME/offsets of the connector that the configuration is of",
            code="TR-1354",
        )
    offset = found[0][1]
    if not offset:
        raise ConfigError(
            "the connector has no offset",
            "its offset was reset, or it has not sent anything yet",
            "leave out --offsets: the pipeline begins as a new connector does",
            code="TR-1354",
        )
    return offset


def _offsets(content: bytes) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Partitions and their offsets."""
    if content.startswith(_JAVA_STREAM):
        values = list(_byte_arrays(content))
        for key, value in zip(values[::2], values[1::2], strict=False):
            partition = _parsed(key)
            if isinstance(partition, list) and len(partition) == 2 and isinstance(partition[1], dict):
                yield partition[1], _object(_parsed(value))
        return
    try:
        document = json_object(content.decode("utf-8-sig"), "the file of offsets")
    except UnicodeDecodeError:
        raise ConfigError("the file of offsets is not UTF-8 text", code="TR-1350") from None
    listed = document.get("offsets", [document])
    if not isinstance(listed, list):
        raise ConfigError("`offsets` is not a list", code="TR-1350")
    for item in listed:
        if not isinstance(item, dict):
            raise ConfigError("an item of `offsets` is not a JSON object", code="TR-1350")
        if "partition" in item or "offset" in item:
            yield _object(item.get("partition")), _object(item.get("offset"))
        else:
            yield {}, item


def _byte_arrays(content: bytes) -> Iterator[bytes]:
    at = 0
    while (match := _BYTE_ARRAY.search(content, at)) is not None:
        length = int.from_bytes(match[1], "big")
        at = match.end() + length
        if at > len(content):
            raise ConfigError("the file of offsets is cut off", code="TR-1350")
        yield content[match.end() : at]


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError("the file of offsets holds something that is not JSON", code="TR-1350") from None


def _object(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError("an offset is not a JSON object", code="TR-1350")
    return value


def _is_snapshot(offset: Mapping[str, Any]) -> bool:
    """Whether the connector was reading its first snapshot."""
    kind = str(offset.get("snapshot", "false")).lower()
    done = any(
        str(offset.get(name, "false")).lower() == "true"
        for name in ("snapshot_completed", "last_snapshot_record")
    )
    return kind not in ("false", "none", "null", "last", "blocking", "incremental") and not done


def _mysql(offset: Mapping[str, Any]) -> str:
    gtids = re.sub(r"\s", "", str(offset.get("gtids") or ""))
    if gtids:
        return f"gtid:{gtids}"
    file, pos = offset.get("file"), _number(offset.get("pos"))
    if not isinstance(file, str) or not re.fullmatch(r"[^:\s]+", file) or pos is None:
        raise ConfigError(
            "the offset has no position",
            "needed: `gtids`, or `file` and `pos`",
            "take the offset of a connector of MySQL or MariaDB",
            code="TR-1354",
        )
    return f"file-at-or-before:{file}:{pos}"


def _postgres(made: Draft, offset: Mapping[str, Any]) -> str:
    if "slot-name" not in made.source:
        raise ConfigError(
            "the connector's slot cannot be read",
            "`plugin.name` is not `pgoutput`, and the log before a new slot is not kept for it",
            "leave out --offsets: the pipeline reads a new snapshot",
            code="TR-1354",
        )
    values = (_number(offset.get(name)) for name in ("lsn_commit", "lsn_proc", "lsn"))
    lsn = next((value for value in values if value), None)
    if lsn is None:
        raise ConfigError(
            "the offset has no position",
            "needed: `lsn_commit`, `lsn_proc` or `lsn`",
            "take the offset of a connector of PostgreSQL",
            code="TR-1354",
        )
    return f"lsn:{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if re.fullmatch(r"\d{1,20}", text) else None
