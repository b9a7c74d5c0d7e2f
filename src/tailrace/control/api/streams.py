"""Routes of one subscription's streams: status, tables, sinks, signals, events, log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from tailrace.control import live_samples, streams
from tailrace.control.api.access import Controlled, Operator, Reader
from tailrace.control.api.models import (
    EventOut,
    EventPage,
    LogPart,
    NewSignal,
    OfSource,
    PathName,
    Requested,
    SampledTableOut,
    SinkResumed,
    Tables,
    TablesToRead,
    TablesToResume,
    Text,
)
from tailrace.control.api.problems import responses
from tailrace.control.audit import read_events
from tailrace.control.tokens import Scope

router = APIRouter(prefix="/subscriptions/{name}", tags=["streams"])
#: Where the source of a route's stream is named.
Source = Annotated[Text | None, Query(description="One of the file's `sources`, where it has several.")]
#: Ids and positions are numbers of 64 bits.
Number = Annotated[int | None, Query(ge=0, le=(1 << 63) - 1)]
ERRORS = responses(404, 409, 502)


@router.get("/status", responses=ERRORS)
def status(control: Controlled, _: Reader, name: PathName) -> dict[str, dict[str, Any]]:
    """The state of each source ("": there is one), from checkpoint, source and sinks."""
    return streams.status(control, name)


@router.post("/tables/park", status_code=202, responses=ERRORS)
def park(control: Controlled, token: Operator, name: PathName, given: Tables) -> Requested:
    """Leave tables out until they are resumed."""
    return Requested(request=streams.park(control, token.name, name, given.tables, source=given.source))


@router.post("/tables/resume", status_code=202, responses=ERRORS)
def resume(control: Controlled, token: Operator, name: PathName, given: TablesToResume) -> Requested:
    """Go on with parked tables."""
    sent = streams.resume_tables(
        control, token.name, name, given.tables, source=given.source, replay=given.replay
    )
    return Requested(request=sent)


@router.post("/tables/resync", status_code=202, responses=ERRORS)
def resync(control: Controlled, token: Operator, name: PathName, given: TablesToRead) -> Requested:
    """Read tables again, in place."""
    sent = streams.resync(control, token.name, name, given.tables, source=given.source, where=given.where)
    return Requested(request=sent)


@router.post("/sinks/{sink}/resume", status_code=202, responses=ERRORS)
def resume_sink(
    control: Controlled, token: Operator, name: PathName, sink: PathName, given: OfSource
) -> SinkResumed:
    """Go on with a parked sink."""
    tables = streams.resume_sink(control, token.name, name, sink, source=given.source)
    return SinkResumed(tables=tables)


@router.post("/signals", status_code=202, responses=ERRORS)
def signal(control: Controlled, token: Operator, name: PathName, given: NewSignal) -> Requested:
    """Send a signal: `execute-snapshot`, `verify`, `repair` and others, see the guide "Signals"."""
    sent = streams.signal(
        control, token.name, name, given.type, given.data, source=given.source, id_=given.id
    )
    return Requested(request=sent)


@router.get("/sample", responses=ERRORS)
def sample(control: Controlled, token: Reader, name: PathName) -> list[SampledTableOut]:
    """The last changes of each table, taken while somebody asks: the first answer may have none yet.

    Keys, and values that somebody has asked for, are shown to tokens of scope `operate`.
    """
    found = live_samples.look(control, name, operates=token.scope.allows(Scope.OPERATE))
    return [SampledTableOut.of(one) for one in found]


@router.post("/sample/values", status_code=202, responses=ERRORS)
def show_values(control: Controlled, token: Operator, name: PathName, given: Tables) -> None:
    """Show the values of tables in the live sample for a minute, from their next changes on; audited."""
    live_samples.show_values(control, token.name, name, given.tables, source=given.source)


@router.get("/events", responses=responses())
def events(
    control: Controlled,
    _: Reader,
    name: PathName,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EventPage:
    """The audit of a subscription, also of one that was removed; the newest first."""
    return event_page(control, name, before, limit)


@router.get("/log", responses=responses(404, 409))
def log(control: Controlled, _: Reader, name: PathName, after: Number = None) -> LogPart:
    """The end of its worker's log, or what follows `after`."""
    text, position = streams.log_tail(control, name, after)
    return LogPart(text=text, next=position)


def event_page(control: Controlled, name: str | None, before: int | None, limit: int) -> EventPage:
    """A page of the audit."""
    found = control.database.read(lambda c: read_events(c, name, before, limit + 1))
    items = [EventOut.of(one) for one in found[:limit]]
    return EventPage(items=items, next=items[-1].id if len(found) > limit else None)
