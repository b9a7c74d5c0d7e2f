"""Requests to a running stream: files in a directory, by default next to the checkpoint.

    <checkpoint>/_tailrace/requests/<id>.json    {"v": 1, "type": "resync", "tables": ["shop.orders"]}
                                                 {"v": 1, "type": "resync", "tables": [...], "needed": true}
                                                 {"v": 1, "type": "park", "tables": [...], "parked": {...}}
                                                 {"v": 1, "type": "resume", "tables": [...], "replay": true}
                                                 {"v": 1, "type": "signal", "signal": {"id": ..., "type": ...,
                                                  "data": {...}}}

A stream's offsets are chosen in a process of Spark's own, which shares nothing with `tailrace run` but the
file system. The stream notes in its offset which requests it has accepted, so that each takes effect once,
whatever crashes; it removes their files once Spark has committed such an offset. A file that is no request
is a signal that cannot be read: it is answered, and does not stop the stream.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from tailrace.enumerator.request import Kind, Request
from tailrace.model.parked import Parked
from tailrace.model.signal import Signal, read_signal
from tailrace.spark.checkpoint import Directory, is_local

_VERSION = 1
_SUFFIX = ".json"
#: How often to look for new files on a remote file system, seconds.
_REMOTE_POLL_S = 5.0


def requests_path(checkpoint: str) -> str:
    """The directory of the requests to the stream with a checkpoint."""
    return f"{checkpoint.rstrip('/')}/_tailrace/requests"


def rows_data(where: Mapping[str, str]) -> dict[str, Any]:
    """The data of a signal to read some rows of tables again, see `RequestDirectory.add_rows`."""
    conditions = [{"data-collection": re.escape(name), "filter": text} for name, text in where.items()]
    return {"data-collections": [re.escape(name) for name in where], "additional-conditions": conditions}


class RequestDirectory:
    """The requests in a directory; see `enumerator.Requests`.

    Args:
        path: the directory; it need not exist.
        clock: monotonic seconds.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = Directory(path, private=True)
        self._path = path
        self._poll_s = 0.0 if is_local(path) else _REMOTE_POLL_S
        self._clock = clock
        self._read_at: float | None = None
        self._pending: list[Request] = []

    def pending(self) -> Sequence[Request]:
        """The requests, the oldest first."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= self._poll_s:
            known = {request.id: request for request in self._pending}
            ids = [name.removesuffix(_SUFFIX) for name in self._directory.names() if name.endswith(_SUFFIX)]
            found = [known.get(id_) or self._read(id_) for id_ in ids]
            self._pending = [request for request in found if request is not None]
            self._read_at = now
        return self._pending

    def add(
        self,
        tables: Sequence[str],
        kind: Kind = "resync",
        *,
        parked: Parked | None = None,
        replay: bool = False,
        needed: bool = False,
        id_: str | None = None,
    ) -> str:
        """Request something of tables, see `Request`; returns the request's id: `id_`, if it is given."""
        id_ = id_ or f"{time.time_ns():019d}-{uuid.uuid4().hex[:8]}"
        request: dict[str, Any] = {"v": _VERSION, "type": kind, "tables": list(tables)}
        if parked is not None:
            request["parked"] = parked.to_json()
        if replay:
            request["replay"] = True
        if needed:
            request["needed"] = True
        return self._write(id_, request)

    def add_signal(self, signal: Mapping[str, Any], id_: str | None = None) -> str:
        """Send a signal: its id, type and data; returns the request's id: `id_`, if it is given."""
        id_ = id_ or f"{time.time_ns():019d}-{uuid.uuid4().hex[:8]}"
        return self._write(id_, {"v": _VERSION, "type": "signal", "signal": {"id": id_, **signal}})

    def add_rows(self, where: Mapping[str, str]) -> str:
        """Request that some rows of tables be read again; returns the request's id.

        It is a signal, as only these are answered: a condition may be refused.

        Args:
            where: the tables, and the condition of their rows (`model.condition`).
        """
        return self.add_signal({"type": "resync", "data": rows_data(where)})

    def _write(self, id_: str, request: Mapping[str, Any]) -> str:
        # a reader must not find half a file: a name without the suffix is no request
        self._directory.write(id_, json.dumps(request))
        self._directory.rename(id_, id_ + _SUFFIX)
        return id_

    def remove(self, ids: Collection[str]) -> None:
        """Remove requests that have taken effect for good."""
        for id_ in ids:
            self._directory.remove(id_ + _SUFFIX)
        self._pending = [request for request in self._pending if request.id not in ids]

    def _read(self, id_: str) -> Request | None:
        try:
            text = self._directory.read(id_ + _SUFFIX)
            if text is None:  # removed meanwhile
                return None
            value = json.loads(text)
            if value["v"] != _VERSION or value["type"] not in get_args(Kind):
                raise ValueError
            if value["type"] == "signal":
                sent = value["signal"]
                return Request(
                    id_, (), "signal", signal=read_signal(sent["id"], sent["type"], sent.get("data"))
                )
            parked = None if value.get("parked") is None else Parked.from_json(value["parked"])
            replay, needed = bool(value.get("replay", False)), bool(value.get("needed", False))
            tables = tuple(map(str, value["tables"]))
            return Request(id_, tables, value["type"], parked, replay, needed=needed)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            problem = "its file is not a request; `tailrace signal`, `resync`, `park` and `resume` write them"
            return Request(id_, (), "signal", signal=Signal(id_, "", problem=problem))
