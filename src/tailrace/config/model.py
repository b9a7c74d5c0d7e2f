"""A pipeline file as typed values, from which `tailrace run` works.

    source:    where changes come from     SourceOptions, and the same as Spark's options
    sources:   the same, several           a `Pipeline` for each, with its name (`config.several_sources`)
    transform: how rows are changed        TransformRule, the first that matches counts
    functions: what transforms call        `config.functions`
    route:     a table's target            RouteRule, the first that matches counts
    sink:      where changes go            `config.sinks`: one or several, `type` says which
    pipeline:  how it runs                 PipelineSettings
    notifications: what it reports         `config.notifications`
    signals:   where commands come from    `config.notifications`
    telemetry: spans and metrics           `config.telemetry`
    lineage:   events of OpenLineage       `config.telemetry`

Every section but `source` is a dataclass, and `config.load` reads a section by its dataclass: a field
`checkpoint_path` is the key `checkpoint-path` (camelCase is read too), its annotation is the type, and a
field without a default is required. A new setting is a new field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tailrace.config.functions import PythonFunction
from tailrace.config.notifications import NotificationSettings, SignalSettings
from tailrace.config.option_values import is_host
from tailrace.config.options import SourceOptions
from tailrace.config.secret import Secret, refuse_credentials, shown
from tailrace.config.sinks import SinkSettings
from tailrace.config.telemetry import LineageSettings, TelemetrySettings
from tailrace.config.verification import VerifySettings
from tailrace.errors import ConfigError
from tailrace.extras import require
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed
from tailrace.model.schema_policy import FOLLOWING, Action

_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class TriggerMode(StrEnum):
    """When batches run."""

    CONTINUOUS = "continuous"
    AVAILABLE_NOW = "available-now"
    INTERVAL = "interval"


class SampleMode(StrEnum):
    """What a live sample may show of a pipeline's changes."""

    NONE = "none"
    KEYS = "keys"
    VALUES = "values"

    def up_to(self, most: SampleMode) -> SampleMode:
        """The lesser of both."""
        order = list(SampleMode)
        return min(self, most, key=order.index)


class Converter(StrEnum):
    """How operations are changed after a transform; the name is Flink CDC's."""

    SOFT_DELETE = "SOFT_DELETE"


@dataclass(frozen=True)
class TransformRule:
    """How the rows of matching tables are changed before they are routed.

    Args:
        source_table: regular expression over `database.table`, matched against the whole name.
        projection: a select list of Spark SQL; `*` stands for the table's columns.
        filter: a condition of Spark SQL over the table's columns; other rows are left out.
        primary_keys: the result's key columns; default: the table's, if the result has all of them.
        converter_after_transform: SOFT_DELETE: a delete becomes an update that keeps the row.
        mask_hash: columns of the result that are replaced by the SHA-256, in hex, of `mask_salt` and their
            text.
        mask_salt: the salt, as a secret reference.
        truncate: columns of the result, and the number of characters they are cut to.
        skipped_operations: letters (c, u, d, r) of the changes that are left out.
        description: a note, without effect.
    """

    source_table: str
    projection: str | None = None
    filter: str | None = None
    primary_keys: tuple[str, ...] = ()
    converter_after_transform: Converter | None = None
    mask_hash: tuple[str, ...] = ()
    mask_salt: Secret | None = None
    truncate: Mapping[str, str] = field(default_factory=dict)
    skipped_operations: tuple[str, ...] = ()
    description: str | None = None


@dataclass(frozen=True)
class RouteRule:
    """Matching tables go to `sink_table`.

    Args:
        source_table: regular expression over `database.table`, matched against the whole name.
        sink_table: the target's name; `$1`... stand for groups, `replace_symbol` for the table's name.
        replace_symbol: text in `sink_table` that is replaced by the source table's own name.
        shard_column: a column with the source table's `database.table`, added to the rows and to their key:
            for shards that share keys.
        description: a note, without effect.
    """

    source_table: str
    sink_table: str
    replace_symbol: str | None = None
    shard_column: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class PipelineSettings:
    """How a pipeline runs.

    Args:
        name: the pipeline's name in logs, targets and Spark; default: the file's name.
        checkpoint: directory of Spark's checkpoint; default: `_tailrace/checkpoint` below the sink's path.
        trigger: when batches run.
        interval_ms: time between batches of `trigger: interval`, milliseconds.
        parallelism: cores of a local Spark; default: all.
        master: Spark master; default: SPARK_MASTER, or a local Spark.
        group: pipelines with the same one share a Spark session on a server of the control plane.
        metrics: where metrics and health are served, as `HOST:PORT`; default: nowhere.
        restarts: how often in a row a stream that failed with a transient error is restarted.
        restarts_per_hour: how often within an hour; 0: no limit.
        on_failure: a command to run, or a webhook to call, when the pipeline ends with an error.
        max_parked: how many tables may be parked, while the others go on; one more ends the pipeline.
        sample: what a live sample may show of its changes.
        verify: when tables are compared with their targets; None: only when somebody asks for it.
        spark: further Spark settings; secrets as references.

    Raises:
        ConfigError: a value is out of its range or has no effect.
    """

    name: str = ""
    checkpoint: str | None = None
    trigger: TriggerMode = TriggerMode.CONTINUOUS
    interval_ms: int = 1000
    parallelism: int | None = None
    master: str | None = None
    group: str | None = None
    metrics: str | None = None
    restarts: int = 10
    restarts_per_hour: int = 60
    on_failure: Secret | None = None
    max_parked: int = 10
    sample: SampleMode = SampleMode.VALUES
    verify: VerifySettings | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("interval-ms", self.interval_ms), ("parallelism", self.parallelism)):
            if value is not None and value <= 0:
                raise ConfigError(f"`pipeline.{name}` must be > 0", f"found {value}", code="TR-1010")
        for name, number in (
            ("restarts", self.restarts),
            ("restarts-per-hour", self.restarts_per_hour),
            ("max-parked", self.max_parked),
        ):
            if number < 0:
                raise ConfigError(f"`pipeline.{name}` must be >= 0", f"found {number}", code="TR-1010")
        refuse_credentials(self.checkpoint, "pipeline.checkpoint")
        if self.group is not None and not _GROUP.fullmatch(self.group):
            raise ConfigError(
                "`pipeline.group` is wrong",
                f"found {shown(self.group)}",
                "needed: letters, digits, `_`, `.` and `-`, the first a letter or digit, 64 at most",
                code="TR-1010",
            )
        if self.metrics is not None:
            host, _, port = self.metrics.rpartition(":")
            if not (is_host(host.strip("[]")) and port.isdecimal() and int(port) < 65536):
                raise ConfigError(
                    "`pipeline.metrics` is wrong",
                    f"found {shown(self.metrics)}, allowed: HOST:PORT, e.g. 127.0.0.1:9404",
                    code="TR-1010",
                )
        if self.trigger is not TriggerMode.INTERVAL and self.interval_ms != PipelineSettings.interval_ms:
            raise ConfigError(
                "`pipeline.interval-ms` has no effect",
                f"found `trigger: {self.trigger}`",
                "set `trigger: interval` or leave it out",
                code="TR-1011",
            )


@dataclass(frozen=True)
class NamedSource:
    """One of several sources of a pipeline file.

    Args:
        name: its name.
        pipeline: the name of the pipeline, which all sources have in common.
        checkpoint: the directory below which each source has its checkpoint.
    """

    name: str
    pipeline: str
    checkpoint: str


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline file, or what it is for one of its sources.

    Args:
        source: the source's options, typed (`shape` is `cells`).
        source_options: the same as Spark's options: camelCase names and texts, secrets as references.
        sinks: the settings of each sink; at least one.
        transforms: in the file's order.
        routes: in the file's order.
        settings: how it runs; `name` and `checkpoint` are filled in.
        notifications: where it tells what its batches did.
        signals: where signals come from.
        telemetry: where spans and metrics go; None: nowhere.
        lineage: where events of OpenLineage go; None: nowhere.
        named: which one of several sources this is; None: the file has `source`. With it, the names of the
            pipeline and of its checkpoint are those of this source.
        soft_deletes: whether `on-truncate` or `on-drop-table` is `soft-delete`, of which the source does not
            know: each table then has a transform that marks deleted rows.
        functions: the functions in Python that transforms call.
        functions_path: where their modules are, besides Python's own path; not a matter of the file.
    """

    source: SourceOptions
    source_options: Mapping[str, str] = field(repr=False)
    sinks: tuple[SinkSettings, ...]
    transforms: tuple[TransformRule, ...]
    routes: tuple[RouteRule, ...]
    settings: PipelineSettings
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    signals: SignalSettings = field(default_factory=SignalSettings)
    telemetry: TelemetrySettings | None = None
    lineage: LineageSettings | None = None
    named: NamedSource | None = None
    soft_deletes: bool = False
    functions: tuple[PythonFunction, ...] = ()
    functions_path: Path | None = None

    @property
    def source_name(self) -> str:
        """The name of the source if there are several, else ""."""
        return "" if self.named is None else self.named.name

    @property
    def follows_former_columns(self) -> bool:
        """Whether each target renames and drops columns with its table: neither need be read again then."""
        made = (ColumnRenamed("", ""), ColumnDropped(""))
        policy = self.source.schema_policy
        return (
            self.named is None  # a target may have tables of several sources
            and not self.transforms
            and not any(route.shard_column for route in self.routes)
            and all(policy.action(change) is not Action.IGNORE for change in made)
            and policy.following == FOLLOWING
            and not policy.keeps_needed_columns
            and all(sink.follows_former_columns for sink in self.sinks)
        )

    @property
    def takes_any_order(self) -> bool:
        """Whether no sink has more work if several tasks have the changes of a key."""
        return all(sink.takes_any_order for sink in self.sinks)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port where metrics are served."""
        if self.settings.metrics is None:
            return None
        host, _, port = self.settings.metrics.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def checkpoint(self) -> str:
        """Directory of Spark's checkpoint."""
        assert self.settings.checkpoint is not None
        return self.settings.checkpoint

    @property
    def paths(self) -> tuple[str, ...]:
        """The directories that it reads and writes: of the checkpoint and of targets that are files."""
        return (self.checkpoint, *filter(None, (getattr(sink, "path", None) for sink in self.sinks)))

    def require_extras(self) -> None:
        """Import the optional packages that the pipeline needs.

        Raises:
            ConfigError: one is missing; names the extra that brings it.
        """
        for extra in self.source.extras:
            require(extra, f"source `{self.source.dialect}`")
        for sink in self.sinks:
            require(sink.extra, f"sink `{sink.type}`")
        if self.telemetry is not None:
            require(self.telemetry.extra, "section `telemetry`")
        if self.lineage is not None:
            require(self.lineage.extra, "section `lineage`")
