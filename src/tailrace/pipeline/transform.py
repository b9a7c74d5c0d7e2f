"""Transforms of a batch by Spark SQL, before any sink: cells in, cells out.

    cells of a table and schema -> images (pipeline.images) -> SELECT projection, filter -> cells again

So a projection, a filter or a mask has the same result for every sink, and any function of Spark SQL can be
used, or one in Python (`pipeline.functions`). Rows pass through the JVM twice; rows of tables without a rule
do not. An expression must be deterministic (`rand()` is not): a replayed batch must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tailrace.config.model import Pipeline, RouteRule, TransformRule
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, concerning
from tailrace.model.cell import CELL_SCHEMA
from tailrace.model.change import OP_LETTERS
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.sparksql import identifier
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.pipeline.functions import Functions
from tailrace.pipeline.images import (
    KEEP,
    SALT,
    SYSTEM_FIELDS,
    Repack,
    image_schema,
    to_images,
)
from tailrace.pipeline.rules import Transforms, expressions, projection_sql
from tailrace.pipeline.soft_deletes import require_marks, soft_deletes
from tailrace.sinks.route import Router
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import TableBatch, changes_of, spark_schema, table_batches
from tailrace.spark.jvm import map_in_arrow, select_list
from tailrace.spark.row_layouts import CellLayout
from tailrace.spark.sql import SUBSTITUTE

_VIEW = "tailrace_rows"
_HASHED = ColumnType(Kind.STRING, "char", length=64)


class Transformer:
    """Applies a pipeline's transforms.

    Args:
        transforms: its rules.
        routes: its routes, for the columns that they add.
        source: the name of the tables' source if there are several, else "".
        marks_all: whether each table must have a transform that marks deleted rows.
        functions: the functions that they may call.
    """

    def __init__(
        self,
        transforms: Sequence[TransformRule],
        routes: Sequence[RouteRule],
        source: str = "",
        *,
        marks_all: bool = False,
        functions: Functions | None = None,
    ) -> None:
        self._transforms = Transforms(transforms)
        self._functions = functions or Functions()
        self._marks_all = marks_all
        #: Tables whose rows can be marked, as is known.
        self._marked: set[TableId] = set()
        self._router = Router(routes, source)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Transformer:
        """That of a pipeline."""
        return cls(
            pipeline.transforms,
            pipeline.routes,
            pipeline.source_name,
            marks_all=pipeline.soft_deletes,
            functions=Functions(pipeline.functions),
        )

    @property
    def does_nothing(self) -> bool:
        """Whether every batch stays as it is."""
        return not self._transforms and not self._router.adds_columns

    def __call__(self, cells: DataFrame) -> DataFrame:
        """The cells of a batch (cached: they are read several times), transformed.

        Raises:
            ConfigError: Spark rejects an expression, or it cannot be used here.
        """
        done: list[DataFrame] = []
        plain: list[str] = []
        for part in table_batches(cells):
            rule, shard = self._transforms.rule(part.table), self._router.shard_column(part.table)
            self._require_marks(cells.sparkSession, part.table)
            if rule is None and shard is None:
                plain.append(str(part.table))
                continue
            rule = rule or TransformRule(str(part.table))
            with concerning(part.table):
                done.extend(
                    _transformed(
                        cells, part, schema, rule, shard=self._shard(shard), functions=self._functions
                    )
                    for schema in part.schemas
                )
        if plain:
            done.append(cells.where(f.col("table").isin(plain)))
        return reduce(DataFrame.unionAll, done) if done else cells

    def check(self, session: SparkSession, table: TableSchema) -> TableSchema | None:
        """Analyse the transform of `table`, without rows.

        Args:
            session: any session.
            table: the table.

        Returns:
            The schema of the result; None if the table is not transformed.

        Raises:
            ConfigError: as `__call__`.
        """
        rule, shard = self._transforms.rule(table.id), self._router.shard_column(table.id)
        self._require_marks(session, table.id)
        if rule is None and shard is None:
            return None
        images = session.createDataFrame([], spark_schema(image_schema(table)))
        rule = rule or TransformRule(str(table.id))
        return _projected(images, table, rule, self._shard(shard), self._functions)[1].table

    def calls_functions(self, table: TableId) -> bool:
        """Whether the transform of `table` calls functions in Python."""
        rule = self._transforms.rule(table)
        return rule is not None and self._functions.any_named_in(expressions(rule))

    def soft_deletes(self, session: SparkSession, tables: Iterable[str]) -> dict[str, SoftDelete]:
        """How rows are marked that a table no longer has, by table, where targets keep them."""
        if not self._transforms:
            return {}
        return soft_deletes(session, self._transforms, tables, self._functions)

    def _require_marks(self, session: SparkSession, table: TableId) -> None:
        if self._marks_all and table not in self._marked:
            with concerning(table):
                require_marks(session, self._transforms.rule(table), table, self._functions)
            self._marked.add(table)

    def _shard(self, column: str | None) -> _Shard | None:
        return None if column is None else _Shard(column, self._router.shard_prefix)


def _transformed(
    cells: DataFrame,
    part: TableBatch,
    schema: TableSchema,
    rule: TransformRule,
    *,
    shard: _Shard | None,
    functions: Functions,
) -> DataFrame:
    of_schema = cells.where(
        (f.col("table") == str(part.table))
        & (f.col("kind") == part.kind)
        & (f.col("fingerprint") == schema.fingerprint)
    ).select("cell")
    salt = rule.mask_salt and rule.mask_salt.resolved()
    images = map_in_arrow(of_schema, _Images(salt), spark_schema(image_schema(schema)))
    projected, plan = _projected(images, schema, rule, shard, functions)
    repack = Repack(
        plan.table,
        frozenset(op for op, letter in enumerate(OP_LETTERS) if letter in rule.skipped_operations),
        rule.converter_after_transform is not None,
        plan.sources,
        None if shard is None else shard.column,
        plan.moving,
    )
    return map_in_arrow(projected, _Cells(repack), spark_schema(CELL_SCHEMA))


@dataclass(frozen=True)
class _Images:
    """Cells to images, in a task."""

    salt: Secret | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first, salt = 0, self.salt.resolve() if self.salt else None
        for changes in changes_of(batches):
            yield to_images(changes, first, salt)
            first += len(changes)


@dataclass(frozen=True)
class _Cells:
    """Images to cells, in a task."""

    repack: Repack

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from CellLayout().rows(self.repack(batches))


@dataclass(frozen=True)
class _Shard:
    """A column that names the row's table, and what the names begin with (`Router.shard_value`)."""

    column: str
    prefix: str


@dataclass(frozen=True)
class _Plan:
    """The schema of the result; the source column of each of its columns (None: computed); see `Repack`."""

    table: TableSchema
    sources: dict[str, str | None]
    moving: frozenset[str]


def _projected(
    images: DataFrame, schema: TableSchema, rule: TransformRule, shard: _Shard | None, functions: Functions
) -> tuple[DataFrame, _Plan]:
    system = [identifier(field.name) for field in (*SYSTEM_FIELDS, SALT)]
    listed = projection_sql(rule, schema)
    if shard is not None:
        value = f"concat('{shard.prefix}', __schema_name__, '.', __table_name__)"
        listed += f", {value} AS {identifier(shard.column)}"
    kept = "true" if rule.filter is None else f"(\n{rule.filter}\n)"
    images.createOrReplaceTempView(_VIEW)
    images.sparkSession.conf.set(SUBSTITUTE, "false")  # the stream's own session
    text = f"SELECT {listed}\n, {', '.join(system)}, {kept} AS {identifier(KEEP)} FROM {_VIEW}"
    try:
        with functions.known_to(images.sparkSession, expressions(rule), schema.id):
            frame = images.sparkSession.sql(text)
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(
            f"Spark rejects the transform of `{schema.id}`",
            reason,
            f"columns: {', '.join(c.name for c in schema.columns)}",
            code="TR-1501",
        ) from None
    selected = select_list(frame)
    if not selected.row_wise:
        raise ConfigError(
            f"the transform of `{schema.id}` cannot be used in a stream that may repeat a batch",
            "it aggregates rows, or is not deterministic (as `rand()` and `uuid()`)",
            "compute it from the row's own columns",
            code="TR-1502",
        )
    count = len(frame.columns) - len(system) - 1
    fields = list(arrow_schema(frame.schema))[:count]
    sources = dict(zip(frame.columns[:count], selected.sources, strict=False))
    columns = [_column(schema, field, sources[field.name]) for field in fields]
    own = {c.name for c in schema.columns}
    sources = {name: source if source in own else None for name, source in sources.items()}
    from_key = {name for name, source in sources.items() if source in schema.key}  # masked ones, too
    frame, columns = _masked(frame, columns, rule, sources)
    added = None if shard is None else shard.column
    table = TableSchema(schema.id, tuple(columns), _key(schema, rule, sources, added))
    return frame, _Plan(table, sources, frozenset(table.key) - from_key - {added})


def _masked(
    frame: DataFrame, columns: list[Column], rule: TransformRule, sources: dict[str, str | None]
) -> tuple[DataFrame, list[Column]]:
    by_name = {c.name: i for i, c in enumerate(columns)}
    for name in (*rule.mask_hash, *rule.truncate):
        if name not in by_name:
            raise ConfigError(
                f"a transform masks or truncates `{name}`, which is no column of its result",
                f"columns: {', '.join(by_name)}",
                code="TR-1503",
            )
    changed = {}
    for name, length in rule.truncate.items():
        changed[name] = f.left(f.col(identifier(name)).cast("string"), f.lit(int(length)))
        columns[by_name[name]] = Column(name, ColumnType(Kind.STRING, "varchar", length=int(length)))
    for name in rule.mask_hash:
        text = changed.get(name, f.col(identifier(name)).cast("string"))
        changed[name] = f.sha2(f.concat(f.col(identifier(SALT.name)), text), 256)
        columns[by_name[name]] = Column(name, _HASHED)
    sources.update(dict.fromkeys(changed))
    listed = [changed[n].alias(n) if n in changed else f.col(identifier(n)) for n in frame.columns]
    return frame.select(*(c for c, n in zip(listed, frame.columns, strict=True) if n != SALT.name)), columns


def _key(
    schema: TableSchema, rule: TransformRule, sources: dict[str, str | None], shard: str | None
) -> tuple[str, ...]:
    """The key that the rule names, else the table's own key if the result has all of its columns."""
    if rule.primary_keys:
        missing = [name for name in rule.primary_keys if name not in sources]
        if missing:
            raise ConfigError(
                f"the transform of `{schema.id}` has a key column `{missing[0]}` that is not in its result",
                f"columns: {', '.join(sources)}",
                code="TR-1504",
            )
        key = rule.primary_keys
    else:
        now = {source: name for name, source in sources.items() if source is not None}
        hashed = {name: name for name in rule.mask_hash}
        key = tuple(now.get(name, hashed.get(name, "")) for name in schema.key)
        if "" in key:
            return ()
    return key if shard is None or not key else (*key, shard)


def _column(schema: TableSchema, field: pa.Field, source: str | None) -> Column:
    """A column of the result, of the source column's type, or of Spark's type if it is computed."""
    known = {c.name.lower(): c for c in schema.columns}
    if source is not None and source.lower() in known:
        old = known[source.lower()]
        return replace(old, name=field.name)
    return Column(field.name, _type(schema, field), field.nullable)


def _type(schema: TableSchema, field: pa.Field) -> ColumnType:
    type_ = field.type
    if pa.types.is_signed_integer(type_):
        names = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
        return ColumnType(Kind.INTEGER, names[type_.bit_width], bits=type_.bit_width)
    if pa.types.is_decimal(type_):
        return ColumnType(Kind.DECIMAL, "decimal", precision=type_.precision, scale=type_.scale)
    if pa.types.is_timestamp(type_):
        kind, native = (Kind.DATETIME, "datetime") if type_.tz is None else (Kind.INSTANT, "timestamp")
        return ColumnType(kind, native, fraction=6)
    plain = {
        pa.string(): ColumnType(Kind.STRING, "longtext"),
        pa.binary(): ColumnType(Kind.BYTES, "longblob"),
        pa.bool_(): ColumnType(Kind.BOOLEAN, "bit", bits=1),
        pa.float32(): ColumnType(Kind.FLOAT, "float"),
        pa.float64(): ColumnType(Kind.DOUBLE, "double"),
        pa.date32(): ColumnType(Kind.DATE, "date"),
        pa.duration("us"): ColumnType(Kind.TIME, "time", fraction=6),
    }
    if type_ not in plain:
        raise ConfigError(
            f"the transform of `{schema.id}` makes a column `{field.name}` of type {type_}",
            "targets can hold numbers, text, bytes and times",
            f"convert it to text: to_json({identifier(field.name)}) AS {identifier(field.name)}",
            code="TR-1505",
        )
    return plain[type_]
