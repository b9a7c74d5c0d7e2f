"""What `tailrace check` finds beyond the source: routes, sinks, transforms and a cluster's workers.

Nothing is written to a target, except where a store answers no other question: a remote path gets an empty
file, which is removed. Transforms are analysed by a local Spark, without rows or with some; workers are asked
by a job.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace import __version__
from tailrace.cache import cache_dir
from tailrace.config.kafka import KafkaSettings
from tailrace.config.model import Pipeline, RouteRule, TransformRule
from tailrace.config.sinks import (
    ClickHouseSettings,
    DeltaSettings,
    DuckDbSettings,
    FileSettings,
    IcebergSettings,
    MySqlSettings,
    OpenSearchSettings,
    PostgresSettings,
    SinkSettings,
)
from tailrace.errors import ConfigError, TailraceError
from tailrace.model.paths import file_name
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.functions import Functions, code_for_tasks
from tailrace.pipeline.replay import replayed
from tailrace.pipeline.rules import Transforms
from tailrace.pipeline.shards import shard_findings
from tailrace.pipeline.transform import Transformer
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.opensearch.nested import Link
from tailrace.sinks.opensearch.routing import key_column
from tailrace.sinks.registry import make_sink
from tailrace.sinks.route import Router
from tailrace.sinks.shared_targets import SharedTargets, SourceOfTarget
from tailrace.sources import registry
from tailrace.sources.preflight import Finding, Severity
from tailrace.spark.checkpoint import Directory, absolute, is_local
from tailrace.spark.session import is_local_master, local_master, spark_session, stop_session

#: Less free space than this is reported.
_LEAST_FREE = 1 << 30
#: Where the documentation shows how an environment is brought to the workers.
_BRINGING = "docs/guides/clusters.md (Bring Tailrace to the workers)"
#: How long the workers may take to answer, seconds.
WORKERS_S = 120.0


def check(
    pipeline: Pipeline, shared: SharedTargets | None = None, *, sample: bool = False
) -> Iterator[Finding]:
    """Every finding about a pipeline whose source is in order.

    Args:
        pipeline: the pipeline, of one source.
        shared: what it has in common with its other sources; None: there are none.
        sample: whether rows of each table are transformed, twice.
    """
    with closing(registry.source(pipeline.source)) as source:
        tables = [table.schema for table in source.tables()]
    yield from _rules(pipeline, [table.id for table in tables])
    yield from shard_findings(pipeline, [table.id for table in tables])
    for number, settings in enumerate(pipeline.sinks):
        name = f"sink {settings.type}" if len(pipeline.sinks) == 1 else f"sink[{number}] {settings.type}"
        of_target = None if shared is None else SourceOfTarget(pipeline.source_name, shared, number)
        yield from _sink(name, settings, pipeline, [table.id for table in tables], of_target)
        if isinstance(settings, OpenSearchSettings):
            yield from _routing(name, settings, pipeline, tables)
            yield from _nested(name, settings, pipeline, tables)
    yield from _directory("checkpoint", pipeline.checkpoint)
    if pipeline.transforms:
        yield from _transforms(pipeline, tables, sample=sample)
    master = pipeline.settings.master or os.environ.get("SPARK_MASTER")
    if master is not None and not is_local_master(master):
        yield from _workers(pipeline, master)


def _rules(pipeline: Pipeline, tables: Sequence[TableId]) -> Iterator[Finding]:
    """Transforms and routes that apply to no table: probably a mistake in a pattern."""
    sections: dict[str, Sequence[TransformRule | RouteRule]] = {
        "transform": pipeline.transforms,
        "route": pipeline.routes,
    }
    for section, rules in sections.items():
        taken: set[TableId] = set()
        for number, rule in enumerate(rules):
            matching = {t for t in tables if _matches(rule.source_table, t)}
            check_ = f"{section}[{number}] `{rule.source_table}`"
            if not matching:
                found, needed = "no captured table matches", "a pattern that matches whole names"
                yield Finding(check_, found, needed, "", Severity.WARNING, code="TR-1511")
            elif not matching - taken:
                found = "an earlier rule applies to all its tables"
                yield Finding(
                    check_,
                    found,
                    "an effect: the first rule that matches counts",
                    "",
                    Severity.WARNING,
                    code="TR-1511",
                )
            taken |= matching


def _matches(pattern: str, table: TableId) -> bool:
    return re.fullmatch(pattern, str(table), re.DOTALL) is not None


def _failed(check_: str, error: TailraceError, needed: str) -> Finding:
    found = error.message + (f" ({error.detail})" if error.detail else "")
    return Finding(check_, found, needed, error.hint or "", Severity.ERROR, code=error.code)


# ---- sinks ----


def _sink(
    name: str,
    settings: SinkSettings,
    pipeline: Pipeline,
    tables: Sequence[TableId],
    source: SourceOfTarget | None,
) -> Iterator[Finding]:
    try:
        with closing(make_sink(settings, pipeline, source)) as sink:
            sink.claim(tables)
    except TailraceError as error:
        yield _failed(name, error, "a target of its own for each table")
        return
    match settings:
        case DeltaSettings() | IcebergSettings() | FileSettings():
            yield from _directory(name, settings.path)
            if isinstance(settings, IcebergSettings) and settings.catalog:
                yield from _opened(name, "catalog", lambda: _iceberg_catalog(settings))
        case KafkaSettings():
            yield from _opened(name, settings.bootstrap_servers, lambda: _kafka(settings))
            if settings.schema_registry_url is not None:
                yield from _opened(name, settings.schema_registry_url, lambda: _schema_registry(settings))
        case OpenSearchSettings():
            yield from _opened(name, settings.urls[0], lambda: _opensearch(settings))
        case ClickHouseSettings():
            yield from _opened(name, settings.url, lambda: _clickhouse(settings))
        case MySqlSettings() | PostgresSettings():
            where = f"{settings.server.host}:{settings.server.port}"
            yield from _opened(name, where, lambda: _replica(settings, pipeline))
        case DuckDbSettings():
            yield from _directory(name, str(Path(absolute(settings.database)).parent))
            yield from _opened(name, settings.database, lambda: _duck(settings))


def _routing(
    name: str, settings: OpenSearchSettings, pipeline: Pipeline, tables: Sequence[TableSchema]
) -> Iterator[Finding]:
    """Whether documents can be routed by the columns that the sink names, as far as keys are known."""
    router, transforms = Router(pipeline.routes, pipeline.source_name), Transforms(pipeline.transforms)
    unknown = set(settings.routing)
    for table in tables:
        target = router.target(table.id)
        unknown.discard(target)
        key = _known_key(table, router, transforms)
        try:
            if key is not None:
                key_column(settings, target, key)
        except TailraceError as error:
            yield _failed(f"{name} routing of {target}", error, "a column of the key")
    for target in sorted(unknown):
        yield Finding(
            f"{name} routing of {target}",
            "no captured table has this target",
            "the name of a target: `database.table`, unless routes give others",
            "",
            Severity.WARNING,
            code="TR-1511",
        )


def _nested(
    name: str, settings: OpenSearchSettings, pipeline: Pipeline, tables: Sequence[TableSchema]
) -> Iterator[Finding]:
    """Whether rows can be nested in the documents that the sink names, as far as keys are known."""
    router, transforms = Router(pipeline.routes, pipeline.source_name), Transforms(pipeline.transforms)
    keys = {router.target(table.id): _known_key(table, router, transforms) for table in tables}
    for link in map(Link.of, settings.nested):
        check_ = f"{name} nested {link.child}"
        for target in (link.parent, link.child):
            if target not in keys:
                yield Finding(
                    check_,
                    f"no captured table has the target `{target}`",
                    "names of targets: `database.table`, unless routes give others",
                    "",
                    Severity.ERROR,
                    code="TR-7323",
                )
        try:
            for target, require in ((link.child, link.of_child), (link.parent, link.of_parent)):
                if (key := keys.get(target)) is not None:
                    require(key)
        except TailraceError as error:
            yield _failed(check_, error, "rows whose parents cannot change")


def _known_key(table: TableSchema, router: Router, transforms: Transforms) -> tuple[str, ...] | None:
    """The columns of a target's key; None if Spark alone knows their names."""
    rule, shard = transforms.rule(table.id), router.shard_column(table.id)
    if rule is not None and rule.projection is not None and not rule.primary_keys:
        return None
    key = (rule.primary_keys if rule is not None else ()) or table.key
    return key if shard is None else (*key, shard)


def _opened(name: str, where: str, connect: Callable[[], str]) -> Iterator[Finding]:
    """Whether a target can be reached."""
    try:
        yield Finding(f"{name} {where}", connect(), "")
    except TailraceError as error:
        yield _failed(f"{name} {where}", error, "a target that can be reached, and accepts this user")


def _iceberg_catalog(settings: IcebergSettings) -> str:
    from tailrace.sinks.iceberg.catalog import answered, open_catalog  # noqa: PLC0415 - an extra

    with answered(settings), closing(open_catalog(settings, settings.path)) as catalog:
        count = len(catalog.list_namespaces())
    return f"answers, {count} namespaces"


def _duck(settings: DuckDbSettings) -> str:
    from tailrace.sinks.duckdb.standing import count_of_targets  # noqa: PLC0415 - an extra

    count = count_of_targets(settings)
    return "will be created" if count is None else f"can be opened, {count} targets"


def _kafka(settings: KafkaSettings) -> str:
    from tailrace.sinks.kafka.client import Client  # noqa: PLC0415 - an extra
    from tailrace.sinks.kafka.cluster import Cluster  # noqa: PLC0415 - an extra

    count = len(Cluster(Client(settings.bootstrap_servers, settings.properties)).names())
    return f"answers, {count} topics"


def _opensearch(settings: OpenSearchSettings) -> str:
    version = OpenSearchClient.of(settings).request("GET", "/").body.get("version", {})
    return f"answers, {version.get('distribution', 'version')} {version.get('number', 'unknown')}"


def _clickhouse(settings: ClickHouseSettings) -> str:
    from tailrace.sinks.clickhouse.client import ClickHouseClient  # noqa: PLC0415 - an extra

    answer = ClickHouseClient(settings).select("SELECT version()")
    return f"answers, ClickHouse {answer.column(0)[0].as_py().decode()}"


def _schema_registry(settings: KafkaSettings) -> str:
    from tailrace.sinks.kafka.formats import schema_registry  # noqa: PLC0415 - an extra

    found = schema_registry(settings)
    assert found is not None
    found.connect()
    return "answers"


def _replica(settings: MySqlSettings | PostgresSettings, pipeline: Pipeline) -> str:
    from tailrace.sinks.replica.sink import open_dialect  # noqa: PLC0415 - an extra

    with closing(open_dialect(settings, pipeline.source.dialect).connect()) as session:
        session.run("SELECT 1")
    return f"accepts user {settings.user}"


def _directory(name: str, path: str) -> Iterator[Finding]:
    """Whether a directory can be written, and has room."""
    check_ = f"{name} {path}"
    if not is_local(path):
        try:
            directory = Directory(path)
            directory.write("_tailrace/check", "")
            directory.remove("_tailrace/check")
        except (OSError, ValueError, NotImplementedError, pa.ArrowException, ConfigError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield Finding(check_, reason, "a store that can be written", "", Severity.ERROR, code="TR-1201")
        else:
            yield Finding(check_, "can be written", "")
        return
    there = Path(absolute(path))
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        found = f"`{there}` is no directory" if not there.is_dir() else f"`{there}` cannot be written"
        remedy = "" if not there.is_dir() else f"chown {os.getuid()} '{there}'"
        yield Finding(
            check_, found, "a directory that this user may write", remedy, Severity.ERROR, code="TR-1201"
        )
        return
    free = shutil.disk_usage(there).free
    found = f"can be written, {free / (1 << 30):,.1f} GB free"
    if free < _LEAST_FREE:
        yield Finding(
            check_, found, "room for the tables and what is staged", "", Severity.WARNING, code="TR-1212"
        )
    else:
        yield Finding(check_, found, "")


# ---- Spark ----


def _transforms(pipeline: Pipeline, tables: Sequence[TableSchema], *, sample: bool) -> Iterator[Finding]:
    """Each table's transform, as Spark analyses it, and what it makes of some rows."""
    transformer = Transformer.of(pipeline)
    session = spark_session(
        f"{pipeline.settings.name} check",
        source=pipeline.source.dialect,
        master=local_master(1),
        log_file=_log_file(pipeline),
        extra_conf=pipeline.settings.spark,
    )
    try:
        with code_for_tasks(session, pipeline.functions_path):
            Functions(pipeline.functions).require(session)
            for table in tables:
                yield from _transform(pipeline, session, transformer, table, sample=sample)
    except ConfigError as error:
        yield _failed("functions", error, "functions that transforms can call, here and on the workers")
    finally:
        stop_session(session)


def _transform(
    pipeline: Pipeline, session: SparkSession, transformer: Transformer, table: TableSchema, *, sample: bool
) -> Iterator[Finding]:
    name = f"transform of {table.id}"
    try:
        result = transformer.check(session, table)
    except ConfigError as error:
        yield _failed(name, error, "expressions over the table's columns")
        return
    if result is None:
        return
    yield Finding(name, f"columns {', '.join(column.name for column in result.columns)}", "")
    if not sample:
        return
    try:
        yield replayed(pipeline, session, transformer, table)
    except TailraceError as error:
        yield _failed(f"sample of {table.id}", error, "a transform that every row passes")


def _workers(pipeline: Pipeline, master: str) -> Iterator[Finding]:
    """What the workers' Python has, and whether they reach the source."""
    check_ = f"cluster {master}"
    try:
        session = spark_session(
            f"{pipeline.settings.name} check",
            master=master,
            log_file=_log_file(pipeline),
            # workers without tailrace must be able to say so
            extra_conf={**pipeline.settings.spark, "spark.python.daemon.module": "pyspark.daemon"},
        )
    except TailraceError as error:
        yield _failed(check_, error, "a cluster that can be reached")
        return
    try:
        answers = _asked(session, pickle.dumps(pipeline.source.for_tasks()))
    finally:
        stop_session(session)
    if answers is None:
        yield Finding(
            check_,
            f"no executor has answered within {WORKERS_S:.0f} s",
            "free cores and memory",
            "end another application, or limit each: pipeline.spark: {spark.cores.max: 2}",
            Severity.WARNING,
            code="TR-1213",
        )
        return
    for host, python, version, problem in sorted(set(answers)):
        where = f"worker {host}"
        if version != __version__:
            found = f"tailrace {version} in `{python}`" if version else f"no tailrace in `{python}`"
            yield Finding(
                where,
                found,
                f"tailrace {__version__}, as here",
                f"install it there, or bring an environment: see {_BRINGING}",
                Severity.ERROR,
                code="TR-1210",
            )
        elif problem:
            reachable = "a worker that reaches the database"
            yield Finding(
                where, f"the source does not answer: {problem}", reachable, "", Severity.ERROR, code="TR-3003"
            )
        else:
            yield Finding(where, f"tailrace {version}, reaches the source", "")


def _asked(session: SparkSession, options: bytes) -> list[tuple[str, str, str, str]] | None:
    """Host, Python, version of tailrace and the problem in reaching the source, of each worker.

    Args:
        session: of the cluster.
        options: the source's, pickled: a worker without tailrace could not read them.
    """

    def answer(_: Any) -> list[tuple[str, str, str, str]]:
        # defined here: cloudpickle sends it by value, to workers that cannot import this module
        import importlib  # noqa: PLC0415
        import pickle  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        try:
            version = importlib.import_module("tailrace").__version__
        except ImportError:
            version = ""
        problem = ""
        if version == expected:
            reach = importlib.import_module("tailrace.sources.route").reach
            problem = reach(pickle.loads(options))  # noqa: S301
        return [(socket.gethostname(), sys.executable, version, problem)]

    expected = __version__
    found: list[tuple[str, str, str, str]] = []

    def ask() -> None:
        context = session.sparkContext
        tasks = max(2, context.defaultParallelism)
        with suppress(Exception):  # cancelled, or the session was stopped
            found.extend(context.parallelize(range(tasks), tasks).mapPartitions(answer).collect())

    thread = threading.Thread(target=ask, name="check", daemon=True)
    thread.start()
    thread.join(WORKERS_S)
    return found or None


def _log_file(pipeline: Pipeline) -> Path:
    return cache_dir("log") / f"{file_name(pipeline.settings.name)}-check.log"
