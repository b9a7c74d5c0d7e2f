"""The page of a pipeline's comparisons: tables against their targets, verify and repair.

Results are beside the checkpoint, which may be in a store far away: the page of the pipeline loads this part
when somebody comes to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Query, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tailrace.control import comparisons, jobs, progress, subscriptions
from tailrace.control.comparisons import SourceComparisons
from tailrace.control.jobs import JobKind, JobState, TableJob
from tailrace.control.pages.listing import PageNumber
from tailrace.control.pages.overview import PAGE, Overview, overview_of
from tailrace.control.pages.references import named, reference
from tailrace.control.pages.site import PageRoute, Site, show, to
from tailrace.control.progress import TableReport
from tailrace.control.stages import Desired, Stage
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError, TailraceError
from tailrace.model.table import TableId
from tailrace.pipeline.rules import Transforms
from tailrace.pipeline.verify_state import Comparison
from tailrace.verify.comparable import compared_sink

_DONE = {
    "verify": "Asked to verify. The results appear here.",
    "repair": "Asked to repair. The results appear here.",
    "cancel": "Asked to cancel the job. Rows that are being read again are read to the end.",
}
#: Jobs that are shown, the newest.
_JOBS = 10


@dataclass(frozen=True)
class ShownResult:
    """What is known of a table and its target in one sink.

    Args:
        sink: the sink's name.
        word: the result of the last comparison, in a word.
        tone: how it is coloured.
        notes: what else there is to say.
        known: all that is known; None: nothing.
    """

    sink: str
    word: str
    tone: str
    notes: Sequence[str] = ()
    known: Comparison | None = None

    @property
    def urgency(self) -> int:
        """Its place in the list: those that differ first, then those that could not be compared."""
        if self.known is None:
            return 3
        return 0 if self.known.differences else 1 if self.known.reason else 2


@dataclass(frozen=True)
class ShownJob:
    """A job as the page shows it.

    Args:
        job: itself.
        about: the tables, in words.
        word: its state, in a word or two.
        tone: how that is coloured.
        notes: what else there is to say.
    """

    job: TableJob
    about: str
    word: str
    tone: str
    notes: Sequence[str]


@dataclass(frozen=True)
class ComparedTable:
    """A table as the page shows it.

    Args:
        table: itself.
        reference: its name, and its source's, as a form can hold them.
        results: one of each sink that can be compared.
        why_not: why it cannot be compared; "": it can.
    """

    table: TableReport
    reference: str
    results: Sequence[ShownResult] = field(default_factory=tuple)
    why_not: str = ""


def routes(site: Site) -> APIRouter:
    """The pages of this module."""
    router = APIRouter(route_class=PageRoute)

    @router.get("/pipelines/{name}/comparisons")
    def page(
        request: Request,
        name: str,
        text: Annotated[str, Query(max_length=300)] = "",
        page: PageNumber = 1,
        done: str = "",
    ) -> Response:
        viewer = site.viewer(request)
        row, reports, asked = site.database.read(lambda connection: _known(connection, name))
        error: TailraceError | None = None
        found: list[SourceComparisons] = []
        try:
            found = comparisons.comparisons(site.control, name)
        except TailraceError as problem:  # of the file or the checkpoint: the database knows the pipeline
            error = problem
        tables = _tables(
            found, [one for one in reports if text.casefold() in one.table.casefold()], is_owned=row.is_owned
        )
        query = urlencode({"text": text}) if text else ""
        return show(
            request,
            viewer,
            "comparisons.html",
            section="Pipelines",
            name=row.subscription.name,
            done=_DONE.get(done, ""),
            error=error,
            refusal=None if error else _refusal(found),
            is_cancelled=row.subscription.stage is Stage.CANCELLED,
            is_stopped=row.subscription.desired is not Desired.RUN,
            waiting=_waiting(found),
            jobs=[_shown(job, is_stopped=row.subscription.desired is not Desired.RUN) for job in asked],
            tables=tables[(page - 1) * PAGE : page * PAGE],
            total=len(tables),
            size=PAGE,
            number=page,
            text=text,
            query=f"{query}&page={page}" if query else f"page={page}",
            query_of_pages=f"{query}&" if query else "",
        )

    @router.post("/pipelines/{name}/comparisons/new")
    def ask(
        request: Request,
        *,
        name: str,
        comparison: Annotated[Literal["verify", "repair", "verify-all", "repair-all"], Form()],
        table: Annotated[list[str] | None, Form(max_length=PAGE)] = None,
        form_token: Annotated[str, Form()] = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.OPERATE)
        kind = JobKind.VERIFY if comparison.startswith("verify") else JobKind.REPAIR
        if comparison.endswith("all"):
            comparisons.compare(site.control, viewer.name, name, kind)
        else:
            for source, names in _chosen(table or []).items():
                comparisons.compare(site.control, viewer.name, name, kind, names, source=source or None)
        return to(request, f"/pipelines/{quote(name, safe='')}/comparisons?done={kind}")

    @router.post("/pipelines/{name}/comparisons/cancel")
    def cancel(
        request: Request,
        *,
        name: str,
        job: Annotated[int, Form(ge=1, le=(1 << 63) - 1)],
        form_token: Annotated[str, Form()] = "",
    ) -> Response:
        viewer = site.acting(request, form_token, Scope.OPERATE)
        with site.database.begin() as connection:
            jobs.cancel(connection, viewer.name, name, job)
        return to(request, f"/pipelines/{quote(name, safe='')}/comparisons?done=cancel")

    return router


def _known(connection: Connection, name: str) -> tuple[Overview, list[TableReport], list[TableJob]]:
    subscription = subscriptions.get(connection, name)
    return (
        overview_of(connection, subscription),
        progress.tables_of(connection, subscription.id),
        jobs.select_jobs(connection, name, most=_JOBS),
    )


def _shown(job: TableJob, *, is_stopped: bool) -> ShownJob:
    source = f"{job.source}: " if job.source else ""
    about = f"{source}{_many(len(job.tables))}" if len(job.tables) != 1 else f"{source}{job.tables[0]}"
    notes = []
    error = (job.result or {}).get("error")
    match job.state:
        case JobState.QUEUED:
            word, tone = "waits", "calm"
            notes.append(
                "the pipeline is paused: it is done when that is resumed"
                if is_stopped
                else "the server that runs the pipeline takes it"
            )
        case JobState.RUNNING:
            word, tone = ("is cancelled", "calm") if job.is_cancelled else ("runs", "warn")
            if job.total:
                notes.append(f"{job.done:,} of {job.total:,} compared")
        case JobState.CANCELLED:
            word, tone = "cancelled", "calm"
        case JobState.FAILED:
            word, tone = "failed", "bad"
        case JobState.DONE:
            word, tone = ("rows differ", "bad") if job.differences else ("equal", "good")
    if job.differences:
        notes.append(f"rows that differ: {job.differences:,}")
    if error is not None:
        notes.append(f"{error['message']} ({error['code']})")
        notes += [error["detail"]] if error["detail"] else []
    return ShownJob(job, about, word, tone, notes)


def _tables(
    found: Sequence[SourceComparisons], reports: Sequence[TableReport], *, is_owned: bool
) -> list[ComparedTable]:
    by_source = {of.pipeline.source_name: of for of in found}
    transforms = {name: Transforms(of.pipeline.transforms) for name, of in by_source.items()}
    tables = []
    for report in reports:
        of = by_source.get(report.source)
        if of is None:  # of a file that has changed since
            continue
        results = [
            _result(sink, of.state.tables.get(sink, {}).get(report.table), is_owned=is_owned)
            for sink in of.sinks
        ]
        why_not = ""
        if not of.sinks:
            why_not = "none of the sinks can be compared with its source"
        elif report.error is not None:
            why_not = "it is parked"
        elif transforms[report.source].rule(TableId.parse(report.table)) is not None:
            why_not = "the pipeline transforms its rows"
        tables.append(ComparedTable(report, reference(report.source, report.table), results, why_not))
    return sorted(tables, key=lambda one: min((of.urgency for of in one.results), default=3))


def _result(sink: str, known: Comparison | None, *, is_owned: bool) -> ShownResult:
    if known is None:
        return ShownResult(sink, "never compared", "calm")
    notes = []
    if known.at_ms is None:
        word, tone = "never compared", "calm"
    elif known.differences:
        word, tone = "different", "bad"
        notes.append(f"rows that differ: {known.differences:,}")
    else:
        word, tone = "repaired" if known.found else "equal", "good"
    if known.found:
        notes.append(f"before its repair: {known.found:,}")
    if known.is_open:
        notes.append(
            "is being compared" if is_owned else "was interrupted: it begins again when the pipeline runs"
        )
    if known.request is not None:
        notes.append("its rows are being read again, to be compared then")
    if known.reason:
        notes.append(f"not compared now: {known.reason}")
    return ShownResult(sink, word, tone, notes, known)


def _waiting(found: Sequence[SourceComparisons]) -> list[str]:
    """What has been asked for and is not done yet, in words."""
    waiting = []
    for of in found:
        source = f"{of.pipeline.source_name}: " if of.pipeline.source_name else ""
        waiting += [f"{source}{one.type}, {_many(len(one.tables))}" for one in of.state.asked]
        waiting += [
            f"{source}{one.type}, {_many(one.tables)}; the pipeline takes it with its next batch"
            for one in of.sent
        ]
    return waiting


def _many(tables: int) -> str:
    return f"{tables} {'table' if tables == 1 else 'tables'}" if tables else "all tables"


def _refusal(found: Sequence[SourceComparisons]) -> TailraceError | None:
    """Why nothing of the pipeline can be compared; None: something can."""
    if any(of.sinks for of in found):
        return None
    pipeline = found[0].pipeline
    try:
        compared_sink(pipeline.sinks, pipeline.source)
    except ConfigError as error:
        return error
    return None


def _chosen(references: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The tables of a form, by their sources."""
    chosen: dict[str, list[str]] = {}
    for source, table in map(named, references):
        chosen.setdefault(source, []).append(table)
    if not chosen:
        raise ConfigError(
            "no table is selected",
            None,
            "select tables in the list, or use the buttons for all of them",
            code="TR-8463",
        )
    return chosen
