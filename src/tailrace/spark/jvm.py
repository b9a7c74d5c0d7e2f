"""Functions of Spark for which PySpark has no API. Only this and `sinks.delta.transaction` access the JVM.

Written for PySpark 4.2.0; each function names the public API that it works around or lacks.
"""

# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tailrace.model.sparksql import identifier

#: The package of the modules that plan.
_PLANNERS = "pyspark.sql.worker."


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Like `frame.mapInArrow(function, schema)`, which imports pandas without needing it."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = udf(*(frame[identifier(name)] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)


@contextmanager
def registered_function(
    session: SparkSession, functions: Sequence[tuple[str, Callable[..., pa.Array], DataType]]
) -> Iterator[None]:
    """Scalar Arrow UDFs that SQL can call by name while it is analysed in this context.

    `session.udf.register` needs a function that was decorated, and has no opposite: a second registration of
    the same name warns.

    Args:
        session: the session.
        functions: the name, the function and the type of its result.
    """
    catalog = session._jsparkSession.sessionState().catalog()
    for name, function, returns in functions:
        udf = UserDefinedFunction(
            function, returnType=returns, name=name, evalType=PythonEvalType.SQL_SCALAR_ARROW_UDF
        )
        session._jsparkSession.udf().registerPython(name, udf._judf)
    try:
        yield
    finally:
        for name, _, _ in functions:
            catalog.dropTempFunction(name, True)


def sql_function_exists(session: SparkSession, name: str) -> bool:
    """Whether Spark or the session has a function; `catalog.functionExists` asks catalogs, too."""
    catalog = session._jsparkSession.sessionState().catalog()
    return bool(catalog.lookupBuiltinOrTempFunction(name).isDefined())


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """Move `frame` to `session`, which plans and runs it; PySpark cannot change a DataFrame's session."""
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)


@dataclass(frozen=True)
class SelectList:
    """Spark's analysis of a select list.

    Args:
        row_wise: whether each row of the result is a deterministic function of one row.
        sources: for each column of the result the column that it copies; None if it is computed.
    """

    row_wise: bool
    sources: Sequence[str | None]


def select_list(frame: DataFrame) -> SelectList:
    """Analyse the select list at the end of `frame`'s plan; PySpark has no access to plans."""
    plan = frame._jdf.queryExecution().analyzed()
    kind = plan.getClass().getSimpleName()
    sources: list[str | None] = []
    listed = plan.projectList() if kind == "Project" else plan.output()
    for i in range(listed.size()):
        column = listed.apply(i)
        if column.getClass().getSimpleName() == "Alias":
            column = column.child()
        plain = column.getClass().getSimpleName() == "AttributeReference"
        sources.append(column.name() if plain else None)
    return SelectList(kind == "Project" and plan.deterministic(), sources)


@dataclass(frozen=True)
class SelectItem:
    """An item of a select list, as it is written.

    Args:
        name: its name.
        sql: its text.
        columns: the columns that it names, in lower case; `*` for all.
    """

    name: str
    sql: str
    columns: frozenset[str]


def select_items(session: SparkSession, listed: str) -> list[SelectItem]:
    """The items of a select list that have names, by Spark's parser: what they name need not exist."""
    before = "SELECT "
    text = f"{before}{listed}\nFROM t"
    parser = session._jsparkSession.sessionState().sqlParser()
    plan = parser.parsePlan(text)
    if plan.getClass().getSimpleName() != "Project":
        return []
    found = []
    for i in range(plan.projectList().size()):
        item = plan.projectList().apply(i)
        start, stop = item.origin().startIndex(), item.origin().stopIndex()
        if item.getClass().getSimpleName() in ("Alias", "UnresolvedAttribute") and start.isDefined():
            leaves = item.collectLeaves()
            columns = set()
            for j in range(leaves.size()):
                leaf = leaves.apply(j)
                if leaf.getClass().getSimpleName() == "UnresolvedAttribute":
                    columns.add(str(leaf.name()).strip("`").lower())
                elif leaf.getClass().getSimpleName() == "UnresolvedStar":
                    columns.add("*")
            name = str(item.name()).strip("`")
            found.append(SelectItem(name, text[start.get() : stop.get() + 1], frozenset(columns)))
    return found


def failure_classes(query: StreamingQuery) -> tuple[str, ...]:
    """Class names of the causes of a query's failure, outermost first; PySpark keeps only the text."""
    failure = query._jsq.exception()
    return () if failure.isEmpty() else _names(failure.get().getCause())


def call_failure_classes(error: Exception) -> tuple[str, ...]:
    """Class names of an error that the JVM raised in a call, and of its causes, outermost first."""
    origin = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    return _names(origin)


def _names(cause: Any) -> tuple[str, ...]:
    names: list[str] = []
    while cause is not None and len(names) < 16:
        names.append(str(cause.getClass().getName()))
        cause = cause.getCause()
    return tuple(names)


def reports_after(query: StreamingQuery, seen: str) -> list[str]:
    """A query's reports after the one called `seen`, as JSON, oldest first.

    `lastProgress` misses the reports of batches that end between two looks; `recentProgress` fetches every
    field of a hundred reports from the JVM, one by one.
    """
    recent = query._jsq.recentProgress()
    found: list[str] = []
    for i in reversed(range(len(recent))):
        text = str(recent[i].json())
        if text == seen:
            break
        found.append(text)
    return found[::-1]


def idle_report_s(query: StreamingQuery) -> float:
    """The time between two reports of a query between batches, seconds: a setting without documentation."""
    conf = query._jsq.sparkSession().sessionState().conf()
    return int(conf.streamingNoDataProgressEventInterval()) / 1000


def register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Like `session.dataSource.register(source)`, once per session; `register` warns of each repetition.

    `register` fails if the thread's active session is another one that knows the source: Spark looks the name
    up there.
    """
    if session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(source.name()):
        return
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    active = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        session.dataSource.register(source)
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def end_planners(session: SparkSession) -> None:
    """End the Python processes that have planned a query on a Python data source.

    Spark keeps a daemon for each step of planning, as long as it lives: 36 MB each, for nothing. One that is
    needed again is started again; a query that they plan at this moment fails. SparkEnv has no API for them.
    """
    env = session._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    field = env.getClass().getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    entries = field.get(env).iterator()
    while entries.hasNext():
        entry = entries.next()
        if f",{_PLANNERS}" in str(entry._1().toString()):
            entry._2().stop()


def is_stopped(session: SparkSession) -> bool:
    """Whether the session's Spark has ended, or its JVM; PySpark does not tell."""
    try:
        return bool(session._jsparkSession.sparkContext().isStopped())
    except (Py4JError, ConnectionError):
        return True


def executors(session: SparkSession) -> frozenset[str]:
    """Host and port of every executor, without the driver; PySpark's status tracker knows only jobs."""
    jvm: Any = session._jvm
    driver = str(jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId().hostPort())
    infos = session._jsparkSession.sparkContext().statusTracker().getExecutorInfos()
    # one without a port has not begun yet: it would seem to be lost when it gets its port
    return frozenset(f"{info.host()}:{info.port()}" for info in infos if info.port() > 0) - {driver}


def cancel_jobs(session: SparkSession, group: str) -> None:
    """Cancel the jobs of a group, and those that begin later; PySpark has the first only."""
    session._jsparkSession.sparkContext().cancelJobGroupAndFutureJobs(group)
