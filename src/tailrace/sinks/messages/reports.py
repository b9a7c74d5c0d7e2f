"""The reports of a batch's writers to the driver, as rows of a Spark job's result.

A task reports a definite error instead of raising it, as Spark would retry the task at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError, TransientSinkError

#: Columns of a report.
#:
#: token: the producer that wrote; null in a failure.
#: refused: changes put into quarantine, by table.
#: ignored: updates of rows of outboxes, by table.
#: failure_kind: "transient" or "definite"; null if there is no failure.
#: failure, detail, hint, code, of: the error's parts.
#: changes: changes written; null if the writer was stopped before it began.
REPORT = (
    "writer int, token string, refused map<string, bigint>, ignored map<string, bigint>,"
    " failure_kind string, failure string, detail string, hint string, code string,"
    " of string,"
    " changes array<struct<table string, kind string, changes bigint>>"
)
_CHANGES = pa.struct([("table", pa.string()), ("kind", pa.string()), ("changes", pa.int64())])
_REPORT = pa.schema(
    [
        ("writer", pa.int32()),
        ("token", pa.string()),
        ("refused", pa.map_(pa.string(), pa.int64())),
        ("ignored", pa.map_(pa.string(), pa.int64())),
        ("failure_kind", pa.string()),
        ("failure", pa.string()),
        ("detail", pa.string()),
        ("hint", pa.string()),
        ("code", pa.string()),
        ("of", pa.string()),
        ("changes", pa.list_(_CHANGES)),
    ]
)
_TRANSIENT, _DEFINITE = "transient", "definite"


def written_report(
    writer: int,
    token: str,
    refused: Mapping[str, int],
    changes: Mapping[tuple[str, str], int],
    ignored: Mapping[str, int] | None = None,
) -> pa.RecordBatch:
    """The report of a writer whose share is in Kafka.

    Args:
        writer: the writer's number.
        token: the token of its producer.
        refused: the number of changes put into quarantine, by table.
        changes: the changes written, by table and kind of cell.
        ignored: the number of updates of rows of outboxes, by table.
    """
    listed = [{"table": table, "kind": kind, "changes": n} for (table, kind), n in changes.items()]
    pairs = {"refused": list(refused.items()), "ignored": list((ignored or {}).items())}
    return _row(writer=writer, token=token, changes=listed, **pairs)


def stopped_report(writer: int) -> pa.RecordBatch:
    """The report of a writer that was stopped before it began."""
    return _row(writer=writer)


def failed_report(error: SinkError) -> pa.RecordBatch:
    """The report of a writer that failed."""
    kind = _TRANSIENT if isinstance(error, TransientSinkError) else _DEFINITE
    parts = {"failure": error.message, "detail": error.detail, "hint": error.hint, "code": error.code}
    return _row(failure_kind=kind, changes=[], of=error.table, **parts)


def reported_error(report: Any) -> SinkError | None:
    """The error in a report, None if there is none.

    Args:
        report: a row of REPORT.
    """
    if report["failure_kind"] is None:
        return None
    kind = TransientSinkError if report["failure_kind"] == _TRANSIENT else SinkError
    return kind(report["failure"], report["detail"], report["hint"], code=report["code"], table=report["of"])


def _row(**values: object) -> pa.RecordBatch:
    arrays = [pa.array([values.get(field.name)], field.type) for field in _REPORT]
    return pa.RecordBatch.from_arrays(arrays, schema=_REPORT)
