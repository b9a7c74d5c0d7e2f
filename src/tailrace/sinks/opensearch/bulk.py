"""Bulk requests: lines in, refused documents out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tailrace.errors import SinkError, TransientSinkError
from tailrace.sinks.opensearch.client import PAUSES_S, OpenSearchClient, error_reason, unavailable

#: Most bytes and actions of a request; a single document may be larger.
_MOST_BYTES, _MOST_ACTIONS = 5 << 20, 10_000
#: What of the answer is needed; statuses come for every action, so that positions count.
_FILTER = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
#: Statuses of an action that a later attempt may not have.
_LATER = (429, 502, 503, 504)


@dataclass(frozen=True)
class Refused:
    """An action that OpenSearch refuses.

    Args:
        number: its number among the lines.
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


def bodies(lines: Iterable[memoryview | bytes]) -> Iterator[list[memoryview | bytes]]:
    """Lines in portions of one request each."""
    portion: list[memoryview | bytes] = []
    size = 0
    for line in lines:
        if portion and (size + len(line) > _MOST_BYTES or len(portion) == _MOST_ACTIONS):
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += len(line)
    if portion:
        yield portion


def send_lines(
    client: OpenSearchClient, path: str, lines: Sequence[memoryview | bytes], *, is_alias: bool = True
) -> list[Refused]:
    """Send one bulk request, until no action has to wait.

    A version conflict counts as done: see `versions`.

    Args:
        client: the connection.
        path: the index or alias, as in a request's path.
        lines: for each action its line and that of its document, if it has one.
        is_alias: whether the name must be an alias.

    Returns:
        The actions that are refused.

    Raises:
        SinkError: the index is gone, or the request as a whole is refused.
        TransientSinkError: the cluster does not answer, or stays overloaded.
    """
    body = b"".join(lines)
    query = f"?filter_path={_FILTER}" + ("&require_alias=true" if is_alias else "")
    problem = ""
    for pause in (*PAUSES_S, None):
        answer = client.request("POST", f"/{path}/_bulk{query}", body)
        if not answer.body["errors"]:
            return []
        results = [next(iter(item.values())) for item in answer.body["items"]]
        if len(results) != len(lines):
            raise SinkError(
                "OpenSearch refuses a request",
                f"its answer to {len(lines)} actions has {len(results)} results",
                "check that `url` is the address of an OpenSearch node",
                code="TR-7303",
            )
        failed = [
            Refused(number, r["status"], r["error"]["type"], error_reason(r["error"]))
            for number, r in enumerate(results)
            if "error" in r and r["status"] != 409
        ]
        late = [refused for refused in failed if refused.status in _LATER or refused.status >= 500]
        if not late:
            _require_index(failed)
            return failed
        problem = late[0].reason
        if pause is not None:
            client.sleep(pause)
    raise unavailable(problem)


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
