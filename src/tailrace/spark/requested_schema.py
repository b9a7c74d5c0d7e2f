"""The schema of a read, as Spark requests it: the layout's own, or the one given by `.schema(...)`.

Spark does not ask the source for its schema when it has one. Rows with other columns would fail in a task,
with a message that names no cause; so the schemas are compared when the read starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.errors import ConfigError
from tailrace.model.change import ChangeBatch
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.row_layouts import RowLayout


@dataclass(frozen=True)
class NullableLayout:
    """A layout with columns that may be null by their schema and are not."""

    layout: RowLayout
    schema: pa.Schema

    def rows(self, changes: Iterator[ChangeBatch]) -> Iterator[pa.RecordBatch]:
        """See RowLayout."""
        return (rows.cast(self.schema) for rows in self.layout.rows(changes))


def schema_of(layout: RowLayout) -> StructType:
    """The layout's schema as Spark's; wall-clock times have no zone."""
    return from_arrow_schema(layout.schema, prefer_timestamp_ntz=True)


def as_requested(layout: RowLayout, requested: StructType) -> RowLayout:
    """The layout, with the requested schema.

    Raises:
        ConfigError: the schemas differ by more than columns that may be null and never are.
    """
    own = schema_of(layout)
    found = [(field.name, field.dataType.simpleString()) for field in requested]
    needed = [(field.name, field.dataType.simpleString()) for field in own]
    if found != needed:
        raise _differs(found, needed)
    strict = [f"`{f.name}`" for f, mine in zip(requested, own, strict=True) if mine.nullable > f.nullable]
    if strict:
        raise ConfigError(
            "the schema given for the read has NOT NULL columns that the rows do not have",
            f"these may be null: {', '.join(strict)}",
            "leave out `.schema(...)`",
            code="TR-1016",
        )
    if requested == own:
        return layout
    return NullableLayout(layout, arrow_schema(requested))


def _differs(found: Sequence[tuple[str, str]], needed: Sequence[tuple[str, str]]) -> ConfigError:
    missing = [f"`{name}` {type_}" for name, type_ in needed if (name, type_) not in found]
    unknown = [f"`{name}` {type_}" for name, type_ in found if (name, type_) not in needed]
    differences = []
    if missing:
        differences.append(f"it lacks {', '.join(missing)}")
    if unknown:
        differences.append(f"it has {', '.join(unknown)}, which the rows do not")
    columns = ", ".join(f"`{name}`" for name, _ in needed)
    return ConfigError(
        "the schema given for the read is not that of the rows",
        "; ".join(differences) or f"its columns are in another order; needed: {columns}",
        "leave out `.schema(...)`, and choose, rename or cast columns with `.select(...)`",
        code="TR-1016",
    )
