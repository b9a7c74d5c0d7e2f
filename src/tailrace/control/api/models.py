"""What goes into the API, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tailrace.config.document import MOST_CHARACTERS
from tailrace.control.audit import Event
from tailrace.control.inspection import Checked, FoundTable
from tailrace.control.jobs import JobKind, JobState, TableJob
from tailrace.control.live_samples import SampledTable
from tailrace.control.metadata.tables import MOST_NAME, MOST_TABLE
from tailrace.control.offsets import OffsetSet
from tailrace.control.progress import TableReport
from tailrace.control.servers import ServerInfo
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import Subscription
from tailrace.control.tokens import Scope, Token

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
#: Text that databases take: without the character NUL.
_TEXT = r"^[^\x00]*$"

Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=MOST_NAME)]
PathName = Annotated[str, Path(pattern=_NAME, max_length=MOST_NAME)]
Spec = Annotated[str, Field(max_length=MOST_CHARACTERS, description="The pipeline file, YAML.")]
Text = Annotated[str, StringConstraints(pattern=_TEXT, max_length=MOST_TABLE)]
TableNames = Annotated[list[Text], Field(min_length=1, max_length=1000)]
SourceName = Annotated[Text | None, Field(description="One of the file's `sources`, where it has several.")]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewSubscription(_In):
    """A subscription to be created."""

    name: Name
    spec: Spec
    paused: bool = Field(False, description="Whether it waits until somebody resumes it.")


class NewSpec(_In):
    """Another file of a subscription."""

    spec: Spec


class Tables(_In):
    """Tables of a subscription, as `database.table`."""

    tables: TableNames
    source: SourceName = None


class TablesToResume(Tables):
    """Parked tables to go on with."""

    replay: bool = Field(False, description="Deliver the changes made meanwhile, instead of reading rows.")


class TablesToRead(Tables):
    """Tables to read again."""

    where: Annotated[Text | None, Field(description="Only rows that it holds for.")] = None


class OfSource(_In):
    """Which source of a subscription is meant."""

    source: SourceName = None


class NewSignal(_In):
    """A signal of Debezium's kinds."""

    type: Text
    data: dict[str, Any] = Field(default_factory=dict)
    id: Name | None = None
    source: SourceName = None


class NewJob(_In):
    """A comparison of tables with their targets, or a repair."""

    kind: JobKind
    tables: Annotated[list[Text], Field(max_length=1000, description="Of one source; none: all.")] = []
    source: SourceName = None
    key: Annotated[
        Name | None, Field(description="Your name for it: the same request once more finds the same job.")
    ] = None


class NewOffset(_In):
    """Another offset of a stream."""

    offset: dict[str, Any] = Field(description="As `GET` shows it in `end`.")
    source: SourceName = None
    unchecked: bool = Field(False, description="Ask neither the server for the position nor the targets.")
    skip_changes: bool = Field(False, description="Do not read tables again because of a later position.")
    dry_run: bool = Field(False, description="Only say what would change.")


class FileToCheck(_In):
    """A pipeline file to check, without creating anything."""

    name: Name
    spec: Spec
    whole: bool = Field(True, description="Also sinks and transforms; it takes some seconds.")
    estimate_seconds: float | None = Field(None, gt=0, le=60, description="How long to measure; null: not.")


class SourceToLookAt(_In):
    """A file whose `tables` say which tables to list; `source` alone will do."""

    spec: Spec


class NewToken(_In):
    """A token to be made."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$", max_length=MOST_NAME)]
    scope: Scope
    days: float | None = Field(None, gt=0, le=36_500, description="When it ends; null: when it is revoked.")


class ReasonOut(BaseModel):
    """Why something is as it is: an error's parts."""

    message: str
    code: str | None = None
    detail: str | None = None
    hint: str | None = None
    since_us: int | None = Field(None, description="since when a subscription has not gone on")


class SubscriptionOut(BaseModel):
    """A subscription."""

    name: str
    spec: str
    group: str | None = Field(description="`pipeline.group` of the file.")
    version: int
    desired: Desired
    stage: Stage
    reason: ReasonOut | None
    failures: int
    retry_us: int | None
    owner: str | None
    lease: int
    created_us: int
    updated_us: int

    @classmethod
    def of(cls, found: Subscription) -> SubscriptionOut:
        """A subscription as the API shows it."""
        reason = None if found.reason is None else ReasonOut.model_validate(dict(found.reason))
        shown = {name: getattr(found, name) for name in cls.model_fields if name != "reason"}
        return cls(reason=reason, **shown)


class SubscriptionPage(BaseModel):
    """A page of subscriptions, in the order of their names."""

    items: list[SubscriptionOut]
    next: str | None = Field(description="Ask for more with `after`; null: there are no more.")


class TableOut(BaseModel):
    """A source table of a subscription, as its owner has reported it."""

    table: str
    source: str
    stage: str
    rows: int | None
    estimated: int | None
    position: str | None
    complete_us: int | None
    changes: int
    error: ReasonOut | None
    updated_us: int

    @classmethod
    def of(cls, found: TableReport) -> TableOut:
        """A table as the API shows it; the cursor holds a key, and is not shown."""
        error = None if found.error is None else ReasonOut.model_validate(dict(found.error))
        return cls(error=error, **{n: getattr(found, n) for n in cls.model_fields if n != "error"})


class SampledChangeOut(BaseModel):
    """A change, as a live sample shows it."""

    op: str = Field(description="c: insert, u: update, d: delete.")
    ts_us: int
    position: str
    txn: str | None
    key: dict[str, str | None] | None = Field(description="null: it is not shown.")
    changed: list[str] | None = Field(description="Of an update; null: the log does not say.")
    before: dict[str, str | None] | None = Field(description="null: there is none, or it is not shown.")
    after: dict[str, str | None] | None = Field(description="null: there is none, or it is not shown.")


class SampledTableOut(BaseModel):
    """The last changes of a table, the newest first."""

    table: str
    source: str
    changes: list[SampledChangeOut]
    masked: list[str] = Field(description="Columns with a mask: their values are never shown.")
    why_no_values: str = Field(description="Why values are never shown; empty: they are if asked for.")
    has_values: bool

    @classmethod
    def of(cls, found: SampledTable) -> SampledTableOut:
        """A table as the API shows it."""
        return cls.model_validate(asdict(found))


class Requested(BaseModel):
    """What was asked of a stream: it obeys with its next batch, or when it is started."""

    request: str


class JobTableOut(BaseModel):
    """What a job has found of a table and its target in one sink."""

    source: str
    sink: str
    table: str
    target: str
    batch: int | None
    source_rows: int | None
    target_rows: int | None
    differences: int | None = Field(description="Rows that differ, at least; null: it was not compared.")
    found: int | None = Field(description="Rows that differed before the repair, where there was one.")
    reads_again: bool = Field(description="Whether rows were still being read again.")
    code: str | None
    reason: str


class JobResultOut(BaseModel):
    """How a job ended."""

    differences: int = Field(description="Rows that differ, at least, in all targets.")
    error: ReasonOut | None
    tables: list[JobTableOut]


class JobOut(BaseModel):
    """A job."""

    id: int
    subscription: str
    key: str
    kind: JobKind
    source: str | None
    tables: list[str]
    state: JobState
    is_cancelled: bool
    attempts: int
    done: int = Field(description="Pairs of sink and table that are done with.")
    total: int
    result: JobResultOut | None = Field(description="Null: it has not ended, or was cancelled before.")
    requested_by: str
    created_us: int
    started_us: int | None
    ended_us: int | None

    @classmethod
    def of(cls, found: TableJob) -> JobOut:
        """A job as the API shows it."""
        shown = {name: getattr(found, name) for name in cls.model_fields if name != "result"}
        return cls.model_validate(
            {**shown, "tables": list(found.tables), "result": found.result and _result(found)}
        )


class JobPage(BaseModel):
    """A page of jobs, the newest first."""

    items: list[JobOut]
    next: int | None = Field(description="Ask for older ones with `before`; null: there are none.")


class SinkResumed(BaseModel):
    """What a sink is given again."""

    tables: list[str] | None = Field(description="The tables; null: all.")


class OffsetOut(BaseModel):
    """The newest batch of a stream."""

    batch: int
    committed: bool
    planned_ms: int
    end: dict[str, Any]
    version: str = Field(description="What the ETag holds.")
    parked: dict[str, ReasonOut]


class OffsetSetOut(BaseModel):
    """An offset that was set, or would be."""

    batch: int = Field(description="The newest batch of the checkpoint; -1: there is none.")
    in_targets: int = Field(description="The newest batch that targets have; -1: not known.")
    is_behind: bool = Field(description="Whether the checkpoint is older than the targets.")
    former: dict[str, Any] | None
    end: dict[str, Any]
    reads_again: list[str] = Field(
        description="Tables that are read again, so that their targets equal them."
    )
    kept: str | None = Field(description="Where in the checkpoint the former one is; null: nothing changed.")

    @classmethod
    def of(cls, found: OffsetSet) -> OffsetSetOut:
        """What was set as the API shows it."""
        part = found.replacement
        return cls(
            batch=part.batch,
            in_targets=part.in_targets,
            is_behind=part.is_behind,
            former=_dict(part.former),
            end=dict(part.value),
            reads_again=list(part.reads_again),
            kept=found.kept,
        )


class Lines(BaseModel):
    """Lines of text."""

    lines: list[str]


class LogPart(BaseModel):
    """A part of a log, in whole lines."""

    text: str
    next: int = Field(description="Ask for what follows with `after`.")


class EventOut(BaseModel):
    """A change that somebody made."""

    id: int
    at_us: int
    subscription: str | None
    actor: str
    kind: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @classmethod
    def of(cls, found: Event) -> EventOut:
        """An event as the API shows it."""
        return cls.model_validate(
            {
                **{name: getattr(found, name) for name in ("id", "at_us", "subscription", "actor", "kind")},
                "before": _dict(found.before),
                "after": _dict(found.after),
            }
        )


class EventPage(BaseModel):
    """A page of events, the newest first."""

    items: list[EventOut]
    next: int | None = Field(description="Ask for older ones with `before`; null: there are none.")


class FindingOut(BaseModel):
    """The outcome of one check."""

    check: str
    severity: str
    found: str
    needed: str
    remedy: str
    code: str | None
    table: str | None


class CheckedOut(BaseModel):
    """What was found of one source of a file."""

    source: str
    in_order: bool
    findings: list[FindingOut]
    estimate: dict[str, Any] | None

    @classmethod
    def of(cls, found: Checked) -> CheckedOut:
        """Findings as the API shows them."""
        findings = [
            FindingOut(**{name: getattr(one, name) for name in FindingOut.model_fields})
            for one in found.findings
        ]
        return cls(
            source=found.source, in_order=found.is_in_order, findings=findings, estimate=found.estimate
        )


class FoundTableOut(BaseModel):
    """A table of a source."""

    name: str
    rows: int
    key: list[str]
    columns: list[str]

    @classmethod
    def all(cls, found: Sequence[FoundTable]) -> list[FoundTableOut]:
        """Tables as the API shows them."""
        return [
            cls(name=one.name, rows=one.rows, key=list(one.key), columns=list(one.columns)) for one in found
        ]


class TokenOut(BaseModel):
    """A token, without its text."""

    name: str
    scope: Scope
    created_us: int
    expires_us: int | None

    @classmethod
    def of(cls, found: Token) -> TokenOut:
        """A token as the API shows it."""
        return cls(**{name: getattr(found, name) for name in cls.model_fields})


class TokenMade(TokenOut):
    """A new token; its text is shown once."""

    token: str


class ServerOut(BaseModel):
    """A server that shares the database."""

    name: str
    host: str
    url: str
    capacity: int
    running: int
    draining: bool
    version: str
    started_us: int
    seen_us: int
    alive: bool

    @classmethod
    def of(cls, found: ServerInfo) -> ServerOut:
        """A server as the API shows it."""
        return cls(**{name: getattr(found, name) for name in cls.model_fields})


def _result(found: TableJob) -> dict[str, Any]:
    assert found.result is not None
    return {**found.result, "differences": found.differences}


def _dict(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)
