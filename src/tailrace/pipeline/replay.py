"""Some rows of a table, transformed twice: what a transform would make of a batch that is repeated.

The second time the rows come in smaller batches, to workers that have called the functions before. So a value
that depends on the time, on chance, on former calls or on the other rows of a batch shows.
"""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.model import Pipeline
from tailrace.errors import SinkError
from tailrace.model.cell import cell_row, decode_cell
from tailrace.model.change import ChangeBatch
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.pipeline.transform import Transformer
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tailrace.sources.preflight import Finding, Severity
from tailrace.spark.sql import own_session
from tailrace.spark.task_errors import parse_error

#: Rows of a table that are transformed.
ROWS = 1000
#: Rows of each batch of the second run.
_ROWS_PER_BATCH = 64
#: Begins Spark's message of an error.
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]*)\]")
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def replayed(
    pipeline: Pipeline, session: SparkSession, transformer: Transformer, table: TableSchema
) -> Finding:
    """Whether a transform gives the same rows twice.

    Args:
        pipeline: the pipeline.
        session: a session; its settings stay as they are.
        transformer: the pipeline's.
        table: a table that it transforms.

    Raises:
        TailraceError: the rows cannot be read, or not be transformed.
    """
    name = f"sample of {table.id}"
    rows = _sample(pipeline, table)
    if not len(rows):
        return Finding(name, "the table is empty", "")
    first, second = (_transformed(session, transformer, rows, size) for size in (ROWS, _ROWS_PER_BATCH))
    if len(first) != len(second):
        found = f"{len(first)} rows, then {len(second)}"
    elif different := _differing(first, second):
        found = ", ".join(
            f"`{column}` differs in {n} of {len(first)} rows" for column, n in different.items()
        )
    else:
        return Finding(name, f"{len(rows)} rows became the same {len(first)} twice", "")
    return Finding(
        name,
        found,
        "the same rows when a batch is repeated",
        "compute each value from the row's own columns, without the time, chance or state",
        Severity.ERROR if transformer.calls_functions(table.id) else Severity.WARNING,
        code="TR-1520",
    )


def _sample(pipeline: Pipeline, table: TableSchema) -> ChangeBatch:
    """The first rows of the table, as a snapshot reads them."""
    with closing(registry.source(pipeline.source)) as source:
        as_of = source.as_of(source.starting_position())
        split = SnapshotSplit(table, None, None, as_of, ROWS)
        with closing(registry.session(pipeline.source)) as session:
            located = session.located(split)
            found = next(read_snapshot(located, session, exact=False), None)
            if found is None:
                return ChangeBatch(table, pa.array([], pa.int8()), None, None, session.read_origin(as_of, 0))
    return found.slice(0, ROWS)


def _transformed(
    session: SparkSession, transformer: Transformer, rows: ChangeBatch, batch_rows: int
) -> pa.StructArray:
    own = own_session(session)
    own.conf.set(_BATCH, batch_rows)
    frame: DataFrame = own.createDataFrame(pa.Table.from_batches([cell_row(rows)]))
    try:
        cells = transformer(frame).select("min_seq", "cell").toArrow()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        found = parse_error(text)
        if found is None:
            # the rest of the text may have values of rows
            condition = _CONDITION.match(text)
            found = SinkError(
                f"Spark cannot transform rows of `{rows.table.id}`",
                condition[1] if condition else type(error).__name__,
                "correct the transform's expressions; `try_cast`, `try_divide` and others give NULL instead",
                code="TR-7008",
            )
        raise found from None
    images = [decode_cell(cell.as_buffer()).image("after") for cell in cells["cell"]]
    return pa.concat_arrays(images) if images else pa.nulls(0, rows.table.arrow)


def _differing(first: pa.StructArray, second: pa.StructArray) -> dict[str, int]:
    """The columns in which rows differ, and how many do."""
    found = {}
    for field in first.type:
        old, new = first.field(field.name), second.field(field.name)
        if pa.types.is_floating(field.type):  # NaN equals itself
            bits = pa.int32() if field.type.bit_width == 32 else pa.int64()
            old, new = old.view(bits), new.view(bits)
        differs = pc.fill_null(pc.not_equal(old, new), False)
        differs = pc.or_(differs, pc.xor(old.is_null(), new.is_null()))
        count = int(np.count_nonzero(differs.to_numpy(zero_copy_only=False)))
        if count:
            found[field.name] = count
    return found
