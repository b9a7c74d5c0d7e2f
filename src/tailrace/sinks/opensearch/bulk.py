"""Bulk requests: lines in, refused documents out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.errors import SinkError, TransientSinkError
from tailrace.sinks.opensearch.client import PAUSES_S, OpenSearchClient, error_reason, unavailable

#: Most bytes and actions of a request; a single document may be larger.
_MOST_BYTES, _MOST_ACTIONS = 5 << 20, 10_000
#: What is needed of the results; each has a status, so that positions count.
_RESULTS = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
#: Statuses from which on an action may succeed later, and one that says so, too.
_SERVER, _BUSY = 500, 429
_CONFLICT = 409
_DELETE = b'{"delete"'
#: Changes nothing, whether there is such a document or not. Deletes with a version create a missing index, as
#: they do not heed `require_alias`, unless an action that does is in the same request.
_GUARD = b'{"update":{"_id":"_"}}\n{"doc":{}}\n'


@dataclass(frozen=True)
class Portion:
    """The lines of one request.

    Args:
        first: the number of its first action among all.
        count: number of its actions.
        body: the lines.
    """

    first: int
    count: int
    body: bytes


@dataclass(frozen=True)
class Refused:
    """An action that OpenSearch refuses.

    Args:
        number: its number among all actions.
        status: its HTTP status.
        kind: the type of the error.
        reason: the reason.
    """

    number: int
    status: int
    kind: str
    reason: str


def action(operation: str, id_: str) -> str:
    """The line of an action without a version."""
    return json.dumps({operation: {"_id": id_}}, ensure_ascii=False)


def portions(lines: pa.BinaryArray) -> Iterator[Portion]:
    """Lines in portions of one request each.

    Args:
        lines: for each action its line and that of its document, if it has one.
    """
    if not len(lines):
        return
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    first = 0
    while first < len(lines):
        within = int(np.searchsorted(ends, int(ends[first]) + _MOST_BYTES, "right")) - 1
        last = min(max(within, first + 1), first + _MOST_ACTIONS, len(lines))
        start, end = int(ends[first]), int(ends[last])
        yield Portion(first, last - first, data.slice(start, end - start).to_pybytes())
        first = last


def send_all(client: OpenSearchClient, path: str, lines: Sequence[bytes]) -> None:
    """Send actions on an index, not an alias, none of which may be refused.

    Raises:
        SinkError: one is refused, or the request as a whole.
        TransientSinkError: the cluster does not answer, or stays overloaded.
    """
    for portion in portions(pa.array(lines, pa.binary())):
        for refused in send(client, path, portion, is_alias=False):
            raise _not_done(f"an action on `{path}` is refused with HTTP {refused.status}: {refused.kind}")


def send(
    client: OpenSearchClient,
    path: str,
    portion: Portion,
    *,
    is_alias: bool = True,
    before: Callable[[], None] = lambda: None,
) -> list[Refused]:
    """Send one bulk request, until no action has to wait.

    A version conflict counts as done: see `versions`. So a request may be sent again as a whole.

    Args:
        client: the connection.
        path: the index or alias, as in a request's path.
        portion: the lines.
        is_alias: whether the name must be an alias.
        before: called before each attempt; what it raises ends them.

    Returns:
        The actions that are refused.

    Raises:
        SinkError: the index is gone, or the request as a whole is refused.
        TransientSinkError: the cluster does not answer, or stays overloaded.
    """
    where = f"/{path}/_bulk?{'require_alias=true&' if is_alias else ''}filter_path="
    is_guarded = is_alias and portion.body.startswith(_DELETE)
    body = _GUARD + portion.body if is_guarded else portion.body
    # the guard is mostly an error
    if not is_guarded and not client.request("POST", f"{where}errors", body, before=before).body["errors"]:
        return []
    # only now are the results of all actions needed: most of them say that all is well
    problem = ""
    for pause in (*PAUSES_S, None):
        answer = client.request("POST", f"{where}{_RESULTS}", body, before=before)
        results = [next(iter(item.values())) for item in answer.body["items"]][int(is_guarded) :]
        if len(results) != portion.count:
            raise _not_done(f"the answer to {portion.count} actions has {len(results)} results")
        failed = [
            _refused(portion.first + number, result)
            for number, result in enumerate(results)
            if "error" in result and result["status"] != _CONFLICT
        ]
        late = [refused for refused in failed if refused.status == _BUSY or refused.status >= _SERVER]
        if not late:
            _require_index(failed)
            return failed
        problem = late[0].reason
        if pause is not None:
            client.sleep(pause)
    raise unavailable(problem)


def _refused(number: int, result: dict[str, Any]) -> Refused:
    error = result["error"]
    return Refused(number, result["status"], error["type"], error_reason(error))


def _not_done(found: str) -> SinkError:
    return SinkError("OpenSearch refuses a request", found, "remove the cause", code="TR-7303")


def index_gone(found: str) -> TransientSinkError:
    """The error for an index that somebody has deleted."""
    return TransientSinkError(
        "an index has been deleted while it was written",
        found,
        "the batch is written again, and the index created anew",
        code="TR-7306",
    )


def _require_index(failed: Sequence[Refused]) -> None:
    """Raise the error of actions that say nothing of their documents."""
    for refused in failed:
        if refused.kind in ("index_not_found_exception", "alias_not_found_exception"):
            raise index_gone(refused.reason)
        if refused.kind == "cluster_block_exception" or refused.status in (401, 403):
            raise SinkError(
                "OpenSearch rejects the client",
                f"HTTP {refused.status}: {refused.reason}",
                "check `user` and `password`, the user's rights, and whether the cluster's indices are"
                " blocked",
                code="TR-7302",
            )
