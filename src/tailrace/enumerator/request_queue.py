"""The requests of one stream: which of them wait, and what an offset becomes that accepts them.

A request takes effect once: the offset that accepts it lists its id until the request is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.enumerator import signals, table_setting
from tailrace.enumerator.captured_tables import CapturedTables
from tailrace.enumerator.horizon import Horizon
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import (
    left_out,
    park,
    park_with_rows,
    resume,
    to_resume,
    waits_to_resume,
)
from tailrace.enumerator.request import Request, Requests
from tailrace.enumerator.rereading import to_reread
from tailrace.enumerator.table_setting import Decision
from tailrace.model.condition import MOST_CONDITION, both
from tailrace.model.parked import Reason
from tailrace.sources.base import Position, Source


class RequestQueue:
    """The requests of one stream.

    Args:
        requests: those that users and the pipeline make; None: there are none.
        horizon: extended to where what was asked for begins.
        dialect: the database: some signals are not possible on each.
        compares: see `signals.Context`.
    """

    def __init__(
        self,
        requests: Requests | None,
        horizon: Horizon,
        *,
        dialect: str,
        compares: bool = False,
    ) -> None:
        self._requests = requests
        self._compares = compares
        self._dialect = dialect
        self._horizon = horizon
        #: The log's end when requests to read tables again were found, by id: as with gaps.
        self._found_at: dict[str, Position] = {}
        #: Those of them up to whose end the log has not been read.
        self._not_due: set[str] = set()

    def look_at(self, source: Source, captured: CapturedTables) -> None:
        """Use this database and its catalog from now on; to be called first."""
        self._source = source
        self._captured = captured

    def waiting(self, start: StreamOffset) -> Sequence[Request]:
        """The requests that the stream has not accepted; of signals, the tables that they concern."""
        found = [*self._not_accepted(start), *signals.waiting_in(start)]
        if all(request.kind != "signal" for request in found):
            return found
        return signals.resolved(found, start, self._context(start))

    def _not_accepted(self, start: StreamOffset) -> list[Request]:
        pending = () if self._requests is None else self._requests.pending()
        return [request for request in pending if request.id not in start.requests]

    def _context(self, offset: StreamOffset, decision: Decision | None = None) -> signals.Context:
        self._captured.require_read(offset)
        return signals.Context(self._captured.schemas, self._dialect, decision, self._compares)

    def sets_tables(self, waiting: Sequence[Request]) -> Request | None:
        """The signal that sets the tables of the next batch; to be asked after `note`."""
        due = [request for request in signals.in_order(waiting, self._not_due) if request.signal is not None]
        return due[0] if table_setting.is_due(due) else None

    def note(self, start: StreamOffset, waiting: Sequence[Request]) -> None:
        """Note up to where the log must be read before tables are read again that requests ask for.

        Rows may be gone without the log saying so. An older change of such a row must not be in a batch
        of the reading: it would count as present.
        """
        if start.log is None or start.mode == "snapshot":
            return
        # all that is older than a signal in the log lies before this batch
        ids = {r.id for r in waiting if r.kind == "resync"} - start.signals.keys()
        at = self._source.position(start.log).order
        self._found_at |= {id_: self._source.position(end) for id_, end in start.waits.items()}
        self._found_at = {id_: end for id_, end in self._found_at.items() if id_ in ids}
        if ids - self._found_at.keys():
            end = self._source.log_end()
            self._found_at |= dict.fromkeys(ids - self._found_at.keys(), end)
            self._horizon.extend(end)
        self._not_due = {id_ for id_, end in self._found_at.items() if end.order > at}

    def waits_for_log(self, offset: StreamOffset) -> bool:
        """Whether something begins once the log is read up to a position that is known already."""
        return bool(self._not_due) or waits_to_resume(offset)

    def accept(
        self, offset: StreamOffset, waiting: Sequence[Request], decision: Decision | None = None
    ) -> StreamOffset:
        """Begin what waiting requests ask for; tables are parked already, or set by a signal.

        What waits for the log is in the offset: another process must not wait anew.

        Args:
            offset: the end of the batch.
            waiting: the requests.
            decision: what was decided about a signal that sets the tables; None: there is none.
        """
        waits = {id_: self._found_at[id_].to_json() for id_ in sorted(self._not_due)}
        offset = replace(offset, waits=waits)
        due = signals.in_order(waiting, self._not_due)
        postponed = table_setting.too_early(due, decision)
        due = signals.in_order(waiting, self._not_due | postponed)
        for request in due:
            if request.kind == "resync":
                if problem := self._problem(offset, request):
                    offset = signals.refused(offset, request, problem)
                    continue
                offset = self._reread(offset, request)
            elif request.kind == "resume":
                offset, is_possible = self._resume(offset, request)
                postponed |= set() if is_possible else {request.id}
            if request.signal is not None and request.id not in postponed:
                offset = signals.answered(offset, request, self._context(offset, decision))
        new = {request.id for request in due} - postponed
        offset = signals.without_accepted(offset, new)
        if self._requests is None or not new:
            return offset
        # an accepted request that no longer waits has taken effect for good
        accepted = new | set(offset.requests)
        return replace(offset, requests=tuple(r.id for r in self._requests.pending() if r.id in accepted))

    def _reread(self, offset: StreamOffset, request: Request) -> StreamOffset:
        tables = self._captured.schemas_in(offset)
        by = request.id if request.signal is None else request.signal.id
        waits = signals.is_blocking(request, self._dialect)
        for name in request.tables:
            if name in offset.parked:  # a target lacks rows of it: its changes are not enough
                offset = park_with_rows(offset, name)
            elif name in tables:
                by_ = None if request.needed else by
                table, where = self._captured.tables[name], request.where.get(name)
                offset = to_reread(offset, table, by_, where, blocking=waits)
        return offset

    def _problem(self, offset: StreamOffset, request: Request) -> str | None:
        """Why rows cannot be read again by the conditions of a request; None if nothing is known."""
        for name, where in request.where.items():
            schema = self._captured.schemas[name]
            if not schema.key:
                return f"`{name}` has no key: rows of it cannot be replaced one by one"
            former = offset.again.get(name)
            held = None if former is None or former.done else former.where
            if held is not None and len(both(held, where)) > MOST_CONDITION:
                return f"`{name}` is being read by other conditions: send it once they are done"
            if problem := self._source.condition_problem(schema, where):
                return problem
        return None

    def _resume(self, offset: StreamOffset, request: Request) -> tuple[StreamOffset, bool]:
        """Let parked tables be resumed; whether that is possible now, as no one holds locks on them."""
        captured = self._captured
        asked = offset.parked.keys() & set(request.tables)
        if not asked:
            return offset, True
        captured.refused.clear()
        captured.check_again()
        captured.read(offset)
        if asked & self._captured.gaps.unpublished:
            return offset, False
        for name in asked:
            if name in captured.refused:
                reason = Reason.of(captured.refused[name])
                offset = park(offset, name, replace(offset.parked[name], reason=reason))
            elif name not in captured.tables:
                offset = offset.without(name)
        assert offset.log is not None
        reads_log = offset.mode != "snapshot"
        end = self._source.log_end() if reads_log else self._source.position(offset.log)
        self._horizon.extend(end)
        able = tuple(name for name in asked if name in offset.parked and name not in captured.refused)
        return to_resume(offset, replace(request, tables=able), end.to_json()), True

    def resumed(self, offset: StreamOffset) -> StreamOffset:
        """`offset` with the tables followed again whose time has come."""
        if not waits_to_resume(offset):
            return offset
        self._captured.require_read(offset)
        assert offset.log is not None
        at = self._source.position(offset.log).order
        for name, entry in offset.parked.items():
            if entry.resume is None or self._source.position(entry.resume).order > at:
                continue
            if name in self._captured.tables:
                offset = resume(offset, name, self._captured.tables[name].estimated_rows)
        return offset

    @property
    def may_be_made(self) -> bool:
        """Whether the stream takes requests."""
        return self._requests is not None

    def request_all(self, end: StreamOffset) -> None:
        """Request that every table be read again, so that a crash behind the batch does not forget it."""
        assert self._requests is not None
        tables = tuple(sorted({*end.tables, *end.done}))
        if all((request.kind, request.tables) != ("resync", tables) for request in self._not_accepted(end)):
            self._requests.add(tables, needed=True)

    def left_out(self, end: StreamOffset) -> frozenset[str]:
        """The tables of which the batch that ends at `end` holds nothing."""
        return left_out(end, () if self._requests is None else self._requests.pending())

    def committed(self, end: StreamOffset) -> None:
        """Remove the requests that have taken effect for good."""
        if self._requests is not None and end.requests:
            self._requests.remove(end.requests)
