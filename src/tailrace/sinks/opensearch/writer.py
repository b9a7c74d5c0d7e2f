"""Writes rows to the index of a target, in a task: snapshot rows, changes, and changes that lack columns.

OpenSearch has no update with a version of one's own. So a change that lacks columns is written as a whole
document: the missing values come from the document that is there. Only earlier batches have written it, and
they are complete, so nothing changes it between reading and writing; if it has this batch's version already,
an earlier attempt has made the change, and nothing is to be done.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.config.sink_settings import MOST_QUARANTINED, RefusedRow
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import LOG, SNAPSHOT, ChangeBatch
from tailrace.sinks.bounded_http import AnswerTooLargeError
from tailrace.sinks.opensearch import quarantine, state
from tailrace.sinks.opensearch.bulk import Refused, index_gone, portions, send
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.composing import PARENTS, Composer
from tailrace.sinks.opensearch.documents import (
    delete_lines,
    ids_of,
    index_lines,
    plain_texts,
    references,
    routings_of,
)
from tailrace.sinks.opensearch.indices import Index
from tailrace.sinks.opensearch.mapping import PARENT
from tailrace.sinks.opensearch.versions import CHECK_S
from tailrace.sinks.quarantine import refused_error
from tailrace.sinks.replica.changes import last_changes, snapshot_inserts
from tailrace.sinks.replica.dialect import RowOperation
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.unit_writer import RowChanges
from tailrace.sinks.versions import version_of

#: Most rows encoded at once, and most documents that are read at once. See `composing.PARENTS`, too.
_ROWS, _DOCUMENTS = 8192, 100
_FIELD = re.compile(r"failed to parse field \[(.{1,300}?)\] of type \[(\w+)\]")


@dataclass(frozen=True)
class Attempt:
    """One attempt to write a batch, as tasks know it.

    Args:
        client: the cluster.
        indices: the targets' indices.
        batch: the batch's number.
        epoch: identifies this attempt.
        policy: what to do with refused rows.
        most_quarantined: how many rows of a source table may be in quarantine.
        children: the indices of nested tables, by target.
        most_nested: how many rows of a table a document may have nested.
    """

    client: OpenSearchClient
    indices: Mapping[str, Index]
    batch: int
    epoch: str
    policy: RefusedRow = RefusedRow.FAIL
    most_quarantined: int = MOST_QUARANTINED
    children: Mapping[str, Index] = field(default_factory=dict)
    most_nested: int = 1000

    def composer(self, target: str) -> Composer:
        """What composes the documents of a target with nested rows."""
        return Composer(self.client, self.indices[target], self.children, self.most_nested)

    def schema(self, target: str) -> TargetSchema:
        """See `WritingAttempt`."""
        return self.indices[target].schema

    def writer(self, target: str) -> Writer:
        """See `WritingAttempt`."""
        return Writer(self, target)


@dataclass
class Writer:
    """Writes rows to a target.

    Args:
        attempt: the attempt at the batch.
        target: the target's name.
    """

    attempt: Attempt
    target: str
    #: How many rows were put into quarantine, by source table.
    put_aside: Counter[str] = field(default_factory=Counter, init=False)
    _checked: float | None = field(default=None, init=False)

    @property
    def index(self) -> Index:
        """The target's index."""
        return self.attempt.indices[self.target]

    def write_snapshot(self, batches: Sequence[ChangeBatch]) -> None:
        """Write snapshot rows.

        Raises:
            SinkError: a row is refused.
            TransientSinkError: the cluster does not answer, or another attempt has begun.
        """
        changes = snapshot_inserts(batches, self.index.schema)
        self._write(changes, version_of(self.attempt.batch, SNAPSHOT))
        failpoint("sink.task")

    def write_changes(self, bucket: Sequence[pa.RecordBatch]) -> None:
        """Write all changes of some keys; see `write_snapshot`."""
        for changes in last_changes(bucket, self.index.schema):
            self._write(changes, version_of(self.attempt.batch, LOG))
        failpoint("sink.task")

    def _write(self, changes: RowChanges, version: int) -> None:
        first = 0
        for rows in changes.rows.to_batches(max_chunksize=PARENTS if self.index.nested else _ROWS):
            if changes.operation is RowOperation.UPDATE:
                for start in range(0, rows.num_rows, _DOCUMENTS):
                    self._update(changes, rows.slice(start, _DOCUMENTS), first + start, version)
            else:
                self._send_rows(changes, rows, first, version)
            first += rows.num_rows

    def _send_rows(self, changes: RowChanges, rows: pa.RecordBatch, first: int, version: int) -> None:
        schema = self.index.schema
        ids, routings = ids_of(rows, schema), self._routings(rows)
        if changes.operation is RowOperation.DELETE:
            lines = delete_lines(schema, ids, version, routings=routings)
        else:
            lines = index_lines(
                self._referring(rows), schema, ids, version, routings=routings, kept=self._nested(rows)
            )
        self._send(changes, ids, lines, range(first, first + len(lines)))

    def _update(self, changes: RowChanges, rows: pa.RecordBatch, first: int, version: int) -> None:
        """Write rows that lack columns; one without a document is skipped."""
        schema = self.index.schema
        rows = rows.select([name for name in rows.schema.names if name not in changes.absent])
        ids, routings = ids_of(rows, schema), self._routings(rows)
        named = None if routings is None else routings.to_pylist()
        documents = read_documents(self.attempt.client, self.index, ids.to_pylist(), named)
        found = [i for i, doc in enumerate(documents) if doc["found"] and doc["_version"] < version]
        if not found:
            return
        sources = [documents[i]["_source"] for i in found]
        kept = {name: plain_texts([source.get(name) for source in sources]) for name in changes.absent}
        at = pa.array(found)
        ids, routings, rows = ids.take(at), None if routings is None else routings.take(at), rows.take(at)
        kept |= self._nested(rows)
        lines = index_lines(self._referring(rows), schema, ids, version, routings=routings, kept=kept)
        self._send(changes, ids, lines, [first + i for i in found])

    def _send(
        self, changes: RowChanges, ids: pa.StringArray, lines: pa.BinaryArray, numbers: Sequence[int]
    ) -> None:
        """Send lines; `numbers`: those of their rows among the changes."""
        for portion in portions(lines):
            refused = send(self.attempt.client, self.index.path, portion, before=self.require_epoch)
            if refused:
                self._refuse(changes, {ids[r.number].as_py(): (numbers[r.number], r) for r in refused})

    def _refuse(self, changes: RowChanges, refused: Mapping[str, tuple[int, Refused]]) -> None:
        """Put refused rows into quarantine, or raise the error of the first.

        Args:
            changes: the changes.
            refused: by the ids of their documents: their numbers among the changes, and why.

        Raises:
            SinkError: refused rows are errors, or too many are in quarantine.
        """
        entries = {}
        for id_, (number, why) in refused.items():
            source, position = changes.origin(number)
            column, reason = _reason(why)
            column = column if column in self.index.schema.arrow.names else ""
            if self.attempt.policy is RefusedRow.FAIL:
                raise refused_error(self.target, column, reason, f"table `{source}` at {position}")
            entries[id_] = changes.put_aside(
                number, self.target, self.attempt.batch, reason, key=self.index.schema.key, column=column
            )
        stream = self.index.stream.query
        quarantine.put(self.attempt.client, stream, entries, self.attempt.most_quarantined)
        self.put_aside.update(entry.table for entry in entries.values())

    def _referring(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with what refers to their parents, if they are nested in others."""
        link = self.index.within
        return rows if link is None else rows.append_column(PARENT, references(rows, link.columns))

    def _nested(self, rows: pa.RecordBatch) -> dict[str, pa.StringArray]:
        """The fields of rows that others are nested in."""
        return self.attempt.composer(self.target).fields(rows) if self.index.nested else {}

    def _routings(self, rows: pa.RecordBatch) -> pa.StringArray | None:
        column = self.index.routing
        return None if column is None else routings_of(rows, column)

    def require_epoch(self) -> None:
        """Check, now and then, that no other attempt has begun.

        Raises:
            TransientSinkError: one has.
        """
        now = time.monotonic()
        if self._checked is None or now - self._checked > CHECK_S:
            state.require_epoch(self.attempt.client, self.target, self.attempt.epoch)
            self._checked = now


def read_documents(
    client: OpenSearchClient, index: Index, ids: Sequence[str], routings: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Documents by their ids: whether there is one, its version and its source.

    Args:
        client: the cluster.
        index: their index.
        ids: their ids.
        routings: their routings, if the index has one.

    Raises:
        SinkError: the index is gone.
    """
    fields = "docs.found,docs._version,docs._source,docs.error.type"
    body: dict[str, Any] = {"ids": list(ids)}
    if routings is not None:
        pairs = zip(ids, routings, strict=True)
        body = {"docs": [{"_id": id_, "routing": routing} for id_, routing in pairs]}
    try:
        answer = client.request("POST", f"/{index.path}/_mget?filter_path={fields}", body)
    except AnswerTooLargeError:
        if len(ids) == 1:
            raise
        middle = len(ids) // 2
        halves = (slice(None, middle), slice(middle, None))
        each = ((ids[half], None if routings is None else routings[half]) for half in halves)
        return [document for half in each for document in read_documents(client, index, *half)]
    documents: list[dict[str, Any]] = answer.body["docs"]
    if any("found" not in document for document in documents):
        raise index_gone(f"no document of `{index.alias}` can be read")
    return documents


def refused_document(index: Index, refused: Refused) -> SinkError:
    """The error for a document that is refused with the rows that are nested in it."""
    _, reason = _reason(refused)
    return refused_error(index.target, "", reason, f"`{index.target}`, with the rows nested in it")


def _reason(refused: Refused) -> tuple[str, str]:
    """The field and the reason for which a document is refused, without values, which OpenSearch's has."""
    found = _FIELD.search(refused.reason)
    return (found[1], f"the value is none of type {found[2]}") if found else ("", refused.kind)
