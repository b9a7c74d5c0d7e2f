"""How columns are stored, and how a stored table follows the schema of its source. Pure.

Stored types are the canonical Arrow types (`ColumnType.arrow`) with one exception: TIME is a number of
microseconds, as neither Delta nor most readers of Parquet support durations.

A target is never rebuilt without the user's consent. It follows its source where it can keep all its data: a
new column is added, a type is widened, a column dropped at the source stays and is null from then on (unless
its target follows that, too: `sinks.tables.former_columns`). A type that the target's column cannot hold
(text in a column of numbers) is a SinkError, or makes the column text (`sinks.tables.text_form`), or gets a
column of its own (`sinks.tables.retyped`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.config.sinks import OnIncompatibleType
from tailrace.errors import SinkError
from tailrace.model.schema_policy import Following
from tailrace.model.table import TableSchema
from tailrace.reader.schema_projection import column_indices

#: What to do about a column that cannot follow its source.
INCOMPATIBLE_HINT = (
    "set `on-incompatible-type: text`, and the column becomes text; or, in Delta and Iceberg, `new-column`, "
    "and the values go to a column of their own; or drop the target and run `tailrace resync PIPELINE.YAML "
    "TABLE`; or change the type back"
)
_INTEGERS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


@dataclass(frozen=True)
class AddColumn:
    """Add a column that the target does not have yet."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class WidenColumn:
    """Widen the type of a column."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class BecomeText:
    """Make a column text, its values included (`sinks.tables.text_form`)."""

    name: str


def stored_schema(table: TableSchema) -> pa.Schema:
    """The columns of a target of `table`.

    Raises:
        SinkError: names differ in case only. Few targets distinguish them, and none of ours does.
    """
    names = [c.name for c in table.columns]
    if len({name.lower() for name in names}) < len(names):
        twins = sorted(n for n in names if sum(n.lower() == other.lower() for other in names) > 1)
        raise SinkError(
            f"columns of table `{table.id}` have names that differ in case only",
            f"found `{'`, `'.join(twins)}`",
            "rename one of them at the source, or leave the table out (`tables`)",
            code="TR-7004",
        )
    return pa.schema([pa.field(c.name, stored_type(c.type.arrow)) for c in table.columns])


def require_free(table: TableSchema, own: Iterable[str], what: str) -> None:
    """Reject a table with a column whose name the target needs itself.

    Args:
        table: the table.
        own: names of columns that the sink adds to the target or to its pending changes.
        what: what needs them, for errors.

    Raises:
        SinkError: a column has one of these names.
    """
    needed = {name.lower() for name in own}
    taken = [c.name for c in table.columns if c.name.lower() in needed]
    if taken:
        raise SinkError(
            f"column `{taken[0]}` of table `{table.id}` has a name that {what} needs",
            f"{what} adds {', '.join(f'`{name}`' for name in sorted(needed))}",
            "rename the column at the source, or by a transform, or use another mode",
            code="TR-7005",
        )


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The stored type of values of the canonical type `type_`."""
    return pa.int64() if pa.types.is_duration(type_) else type_


def follow(
    target: str,
    held: pa.Schema,
    needed: Iterable[pa.Field],
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK,
    *,
    widens: bool = True,
    key: Collection[str] = (),
    can_widen: Callable[[pa.DataType, pa.DataType], bool] = lambda _old, _new: True,
) -> list[AddColumn | WidenColumn | BecomeText]:
    """The changes that let a target also hold rows of another schema.

    Args:
        target: its name, for errors.
        held: its present columns.
        needed: the columns of the other schema.
        on_incompatible_type: what becomes of a column that cannot hold values of both types.
        widens: whether columns may be altered.
        key: the key's columns, which do not become text: another type makes another key.
        can_widen: whether the target can alter a column from one type to a wider one.

    Raises:
        SinkError: a column cannot hold values of both types.
    """
    changes: list[AddColumn | WidenColumn | BecomeText] = []
    by_name = {field.name.lower(): field for field in held}
    for field in needed:
        old = by_name.get(field.name.lower())
        if old is None:
            changes.append(AddColumn(field.name, field.type))
        elif not fits(field.type, old.type):
            both = holding_both(old.type, field.type) if widens else None
            can_be_text = on_incompatible_type is OnIncompatibleType.TEXT and field.name not in key
            if can_be_text and (both is None or not can_widen(old.type, both)):
                if pa.types.is_string(old.type):
                    continue  # it has become text, and stays so
                if widens:
                    changes.append(BecomeText(old.name))
                    continue
            if both is None:
                found = f"the target holds {old.type}, the source has changed to {field.type}"
                found += "" if widens else ", and the settings keep the types of targets"
                raise incompatible(field.name, target, found, on_incompatible_type)
            changes.append(WidenColumn(old.name, both))
    return changes


def kept_schema(target: str, schema: TableSchema, held: Iterable[str], following: Following) -> TableSchema:
    """`schema` without the columns that a target does not get, by the settings.

    Args:
        target: the target's name, for errors.
        schema: the schema of a table's rows.
        held: the columns that the target has.
        following: the settings.

    Raises:
        SinkError: one of them is of the table's key.
    """
    if following.adds:
        return schema
    names = {name.lower() for name in held}
    missing = [name for name in schema.key if name.lower() not in names]
    if missing:
        raise SinkError(
            f"target `{target}` has no column `{missing[0]}`, which is of the key of `{schema.id}` now",
            "`schema.change.behavior`, `include.schema.changes` or `exclude.schema.changes` keep new columns "
            "from targets",
            "set `schema.change.behavior: evolve`, start the pipeline again, and: tailrace resume "
            "PIPELINE.YAML TABLE",
            code="TR-7039",
            table=str(schema.id),
        )
    columns = tuple(c for c in schema.columns if c.name.lower() in names)
    return schema if columns == schema.columns else replace(schema, columns=columns)


def incompatible(column: str, target: str, found: str, policy: OnIncompatibleType) -> SinkError:
    """The error for a column that cannot follow its source.

    Args:
        column: the column.
        target: the target.
        found: what was found.
        policy: whether its table alone is to stop, or the pipeline.
    """
    message = f"column `{column}` of target `{target}` cannot follow its source"
    if policy is OnIncompatibleType.FAIL:
        return SinkError(message, found, INCOMPATIBLE_HINT, code="TR-7035")
    return SinkError(message, found, INCOMPATIBLE_HINT, code="TR-7001")


def held_names(held: pa.Schema, names: Sequence[str]) -> list[str]:
    """The names that a target has for columns of its source, which may have been renamed in case only."""
    indices = column_indices(held.names, names)
    return [name if i is None else held.names[i] for name, i in zip(names, indices, strict=True)]


def can_follow(held: pa.DataType, needed: pa.DataType) -> bool:
    """Whether a column of type `held` can be altered, if it must be, to hold values of type `needed`, too."""
    return holding_both(held, needed) is not None


def can_hold(held: pa.DataType, needed: pa.DataType) -> bool:
    """Whether a column of type `held` holds values of type `needed` as it is."""
    return fits(needed, held)


def holding_both(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that holds every value of two, and that Delta can change `one` to; None if there is none."""
    if fits(other, one):
        return one
    if fits(one, other):
        return other
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return None


def fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether `wide` holds every value of `narrow`, and Delta can change one type to the other."""
    if narrow == wide:
        return True
    if narrow in _INTEGERS:
        if wide in _INTEGERS:
            return _INTEGERS[narrow] < _INTEGERS[wide]
        if pa.types.is_decimal128(wide):
            # Delta treats a byte and a short as an int here.
            return bool(wide.precision - wide.scale >= max(_INTEGERS[narrow], 10))
        return bool(pa.types.is_float64(wide)) and narrow != pa.int64()
    if pa.types.is_float32(narrow):
        return bool(pa.types.is_float64(wide))
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        more = wide.scale - narrow.scale
        return bool(more >= 0 and wide.precision - narrow.precision >= more)
    return bool(pa.types.is_date32(narrow) and wide == pa.timestamp("us"))


def merged_schema(target: str, schemas: Iterable[TableSchema]) -> pa.Schema:
    """Columns that hold the rows of all `schemas`.

    Raises:
        SinkError: see `follow`.
    """
    merged = pa.schema([])
    for schema in schemas:
        for change in follow(target, merged, stored_schema(schema)):
            assert not isinstance(change, BecomeText)  # only by a setting of targets that stay
            field = pa.field(change.name, change.type)
            if isinstance(change, AddColumn):
                merged = merged.append(field)
            else:
                merged = merged.set(merged.get_field_index(change.name), field)
    return merged
