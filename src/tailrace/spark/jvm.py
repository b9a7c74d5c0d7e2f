"""What Spark can do but PySpark has no call for. Only this and `sinks.delta.transaction` reach into the JVM.

Written against PySpark 4.2.0; each function says which public call would end it.
"""

# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tailrace.model.sparksql import identifier


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, which asks for pandas without needing it."""
    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = udf(*(frame[identifier(name)] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """`frame` planned and run by `session`: a DataFrame keeps to the session that made it."""
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)


@dataclass(frozen=True)
class SelectList:
    """What Spark makes of a select list.

    Args:
        row_wise: each row of the result is made of one row, always the same for the same row.
        sources: of each column of the result the column that it is, None for one that is computed.
    """

    row_wise: bool
    sources: Sequence[str | None]


def select_list(frame: DataFrame) -> SelectList:
    """What the select list that `frame` ends with does; PySpark shows no plans."""
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


def failure_classes(query: StreamingQuery) -> tuple[str, ...]:
    """Class names of a failed query's causes, outermost first; PySpark keeps the text only."""
    failure = query._jsq.exception()
    if failure.isEmpty():
        return ()
    names: list[str] = []
    cause = failure.get().getCause()
    while cause is not None and len(names) < 16:
        names.append(str(cause.getClass().getName()))
        cause = cause.getCause()
    return tuple(names)
