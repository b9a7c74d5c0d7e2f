"""The live sample of a subscription: the last changes of its tables, taken while somebody looks.

What may be shown is the lesser of the server's option `--sample` and the file's `pipeline.sample`:

    none      nothing; tasks are not told that somebody looks
    keys      operation, position, time, and which columns have changed; keys for who may operate
    values    also values, for a minute, if somebody who may operate asks for those of a table; audited

Columns with a mask are never shown, columns that are not captured are not there, and of tables with a
transform neither keys nor values are: it may be there to hide something. See `spark.live_sample`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.load import chosen
from tailrace.config.model import Pipeline, SampleMode
from tailrace.control.operations import Control
from tailrace.control.streams import note_request, pipelines_of, reaching, reading
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.pipeline import table_requests
from tailrace.pipeline.rules import Transforms
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.live_sample import Samples


@dataclass(frozen=True)
class SampledChange:
    """A change.

    Args:
        op: Debezium's letter.
        ts_us: when it was committed, by the source's clock; 0: not known.
        position: where it is in the log.
        txn: its transaction; None: it has no id.
        key: its key; None: it is not shown.
        changed: columns that an update has changed; None: the log does not say.
        before: the row before; None: there is none, or it is not shown.
        after: the row after, likewise.
    """

    op: str
    ts_us: int
    position: str
    txn: str | None
    key: Mapping[str, str | None] | None
    changed: Sequence[str] | None
    before: Mapping[str, str | None] | None
    after: Mapping[str, str | None] | None


@dataclass(frozen=True)
class SampledTable:
    """The last changes of a table.

    Args:
        table: its name.
        source: one of the file's `sources`; "": it has one.
        changes: the newest first.
        masked: the columns that have a mask: their values are never shown.
        why_no_values: why its values are never shown; "": they are when somebody asks.
        has_values: whether they are shown now.
    """

    table: str
    source: str
    changes: Sequence[SampledChange] = field(default_factory=tuple)
    masked: Sequence[str] = ()
    why_no_values: str = ""
    has_values: bool = False


def look(control: Control, name: str, *, operates: bool) -> list[SampledTable]:
    """The last changes of a subscription's tables; the stream learns that somebody looks.

    Args:
        control: the control plane.
        name: the subscription.
        operates: whether who looks may operate: keys, and values that were asked for, are shown.

    Raises:
        ControlError: there is no such subscription.
        ConfigError: a live sample is not allowed.
        TailraceError: its file or its checkpoint cannot be read.
    """
    found = []
    for pipeline in pipelines_of(control, control.get(name)):
        mode = _require(control, pipeline, SampleMode.KEYS)
        with reaching(pipeline), reading(pipeline):
            samples = Samples(pipeline.checkpoint)
            if Checkpoint(pipeline.checkpoint).query_id() is None:  # it has never run
                continue
            asked = samples.look(_hidden(pipeline))
            shown = asked if operates and mode is SampleMode.VALUES else frozenset[str]()
            found += [
                _table(pipeline, one, mode, operates=operates, values=one["table"] in shown)
                for one in samples.found()
            ]
    return found


def show_values(
    control: Control, actor: str, name: str, tables: Sequence[str], *, source: str | None = None
) -> None:
    """Show the values of tables for a minute, from their next changes on.

    Args:
        control: the control plane.
        actor: who asks for it.
        name: the subscription.
        tables: the tables.
        source: one of the file's `sources`, where it has several.

    Raises:
        ControlError: there is no such subscription.
        ConfigError: it is not allowed, or a table is not captured.
    """
    pipeline = chosen(pipelines_of(control, control.get(name)), source)
    _require(control, pipeline, SampleMode.VALUES)
    for table in tables:
        if why := _why_hidden(pipeline, table):
            raise ConfigError(
                f"the values of table `{table}` are not shown", why, "look at its target", code="TR-8467"
            )
    with reaching(pipeline), reading(pipeline):
        table_requests.require_captured(pipeline, tables, "has no changes")
        # before anything is shown
        note_request(control, actor, pipeline, "show_values", tables=list(tables))
        Samples(pipeline.checkpoint).look(_hidden(pipeline), tables)


def _require(control: Control, pipeline: Pipeline, needed: SampleMode) -> SampleMode:
    """What a live sample of a pipeline may show.

    Raises:
        ConfigError: less than needed.
    """
    of_file, of_server = pipeline.settings.sample, control.policy.sample
    mode = of_file.up_to(of_server)
    if needed.up_to(mode) is not needed:
        is_file = of_file is mode
        raise ConfigError(
            "a live sample of this pipeline is not allowed"
            if mode is SampleMode.NONE
            else "a live sample of this pipeline shows no values",
            f"found `{'pipeline.' if is_file else '--'}sample{':' if is_file else ''} {mode}`, "
            f"needed `{needed}`",
            "change the pipeline file" if is_file else "start the servers with another `--sample`",
            code="TR-8466",
        )
    return mode


def _hidden(pipeline: Pipeline) -> list[str]:
    return [rule.source_table for rule in pipeline.transforms]


def _why_hidden(pipeline: Pipeline, table: str) -> str:
    rule = Transforms(pipeline.transforms).rule(TableId.parse(table))
    return "" if rule is None else "the pipeline transforms its rows, maybe to hide something"


def _table(
    pipeline: Pipeline, found: Mapping[str, Any], mode: SampleMode, *, operates: bool, values: bool
) -> SampledTable:
    table = str(found["table"])
    why = _why_hidden(pipeline, table)
    if not why and mode is not SampleMode.VALUES:
        why = "the pipeline's file, or the server, does not allow it"
    is_hidden = bool(_why_hidden(pipeline, table))
    changes = [
        SampledChange(
            one["op"],
            one["ts_us"],
            f"{one['file']}:{one['pos']}" if one["file"] else str(one["pos"]),
            one["txn"],
            one["key"] if operates and not is_hidden else None,
            one["changed"],
            one["before"] if values and not why else None,
            one["after"] if values and not why else None,
        )
        for one in reversed(found["changes"])
    ]
    masked = found["changes"][-1]["masked"] if found["changes"] else ()
    return SampledTable(table, pipeline.source_name, changes, masked, why, values and not why)
