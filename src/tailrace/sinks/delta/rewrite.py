"""New files for a Delta table whose columns are renamed, dropped or widened: in one commit, by Spark's tasks.

    data files ──tasks──▶ new files with the new columns ──driver──▶ one commit: the new schema, `txn`,
                                                                     all old files out, all new files in

A table that is altered so needs no feature that readers lack. Its rows stay the same, and its files say so
(`dataChange` is false): what follows the table's commits does not see the rows again. Delta refuses the
commit if another one came first. Deleted rows (deletion vectors) are left behind; partitions, clustering,
statistics, properties, constraints and comments stay.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.transaction import CommitMark, removal
from tailrace.sinks.tables.columns import WidenColumn
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.spark.cells import spark_schema

#: The property that names the columns with statistics, instead of the first 32.
_STATS = "delta.dataSkippingStatsColumns"
#: A name in it: quoted or not, with dots between the fields of a struct.
_NAME = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
#: What Delta notes of a column whose type was altered in place, and its files were not.
_TYPE_CHANGES = "delta.typeChanges"


@dataclass(frozen=True)
class Altered:
    """How a table's columns are altered.

    Args:
        renamed: new names, by the former ones.
        dropped: columns that go.
        widened: new types, by the new name.
        within: prefixes of the source's columns: empty, or `name.` of a struct.
        naming: columns that hold names of the source's columns, as lists of texts.

    Without a prefix, only the names in `naming` are altered.
    """

    renamed: Mapping[str, str]
    dropped: frozenset[str]
    widened: Mapping[str, DataType]
    within: Sequence[str]
    naming: Sequence[str]

    @classmethod
    def by(
        cls,
        changes: Sequence[RenameColumn | DropColumn | WidenColumn],
        within: Sequence[str],
        naming: Sequence[str],
    ) -> Altered:
        """What `changes` come to; a widened column has its new name."""
        types = pa.schema([(c.name, c.type) for c in changes if isinstance(c, WidenColumn)])
        return cls(
            {c.old: c.new for c in changes if isinstance(c, RenameColumn)},
            frozenset(c.old for c in changes if isinstance(c, DropColumn)),
            {c.name: c.dataType for c in spark_schema(types)},
            within,
            naming,
        )

    @property
    def names(self) -> list[str]:
        """The former names that are gone."""
        return [*self.renamed, *self.dropped]

    # ---- the schema ----------------------------------------------------------------------------------

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """A table's metadata (the contents of Delta's action), altered."""
        schema = json.loads(metadata["schemaString"])
        schema["fields"] = self._fields(schema["fields"], "")
        new = {**metadata, "schemaString": json.dumps(schema)}
        held = metadata["configuration"]
        if _STATS in held and self.within:
            new["configuration"] = held | {_STATS: self._statistics(held[_STATS])}
        return new

    def _fields(self, fields: Sequence[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
        found = []
        for field in fields:
            inner = f"{field['name']}."
            if not prefix and inner in self.within:
                type_ = {**field["type"], "fields": self._fields(field["type"]["fields"], inner)}
                found.append({**field, "type": type_})
            elif prefix not in self.within:
                found.append(field)
            elif field["name"] not in self.dropped:
                found.append(self._field(field))
        return found

    def _field(self, field: Mapping[str, Any]) -> dict[str, Any]:
        name = self.renamed.get(field["name"], field["name"])
        type_ = self.widened.get(name)
        if type_ is None:
            return {**field, "name": name}
        metadata = {key: value for key, value in field["metadata"].items() if key != _TYPE_CHANGES}
        return {**field, "name": name, "type": type_.jsonValue(), "metadata": metadata}

    def _statistics(self, listed: str) -> str:
        """The columns with statistics, by their new names."""
        names = []
        for name in (found.strip() for found in _NAME.findall(listed)):
            prefix = next((p for p in self.within if p and name.startswith(p)), "")
            column = name.removeprefix(prefix)
            column = column[1:-1].replace("``", "`") if column.startswith("`") else column
            if column in self.dropped:
                continue
            new = self.renamed.get(column)
            names.append(name if new is None else prefix + identifier(new))
        return ",".join(names)

    # ---- the rows ------------------------------------------------------------------------------------

    def rows(self, held: DataFrame) -> DataFrame:
        """A table's rows, altered."""
        found = []
        for field in held.schema:
            inner, value = f"{field.name}.", f.col(identifier(field.name))
            if inner in self.within and isinstance(field.dataType, StructType):
                fields = [self._value(value[n], n) for n in field.dataType.names if n not in self.dropped]
                found.append(f.when(value.isNotNull(), f.struct(*fields)).alias(field.name))
            elif field.name in self.naming:
                found.append(self.listed(value).alias(field.name))
            elif "" not in self.within:
                found.append(value)
            elif field.name not in self.dropped:
                found.append(self._value(value, field.name))
        return held.select(*found)

    def _value(self, value: Column, name: str) -> Column:
        name = self.renamed.get(name, name)
        type_ = self.widened.get(name)
        return (value if type_ is None else value.cast(type_)).alias(name)

    def listed(self, names: Column) -> Column:
        """Names of columns, altered; null if none is left."""
        if not self.names:
            return names

        def new_name(name: Column) -> Column:
            found = name
            for old, new in self.renamed.items():
                found = f.when(f.lower(name) == old.lower(), f.lit(new)).otherwise(found)
            return found

        gone = [name.lower() for name in self.dropped]
        kept = f.filter(names, lambda name: ~f.lower(name).isin(gone)) if gone else names
        return f.when(f.size(kept) > 0, f.transform(kept, new_name))

    def names_any(self, held: DataFrame) -> bool:
        """Whether rows name a column that is gone."""
        if not self.names:
            return False
        gone = f.array(*(f.lit(name) for name in self.names))
        lists = [f.col(name) for name in self.naming if name in held.columns]
        return any(not held.where(f.arrays_overlap(names, gone)).isEmpty() for names in lists)


def rewrite(table: DeltaTable, altered: Altered, mark: CommitMark) -> None:
    """Write all rows of a table into new files, with altered columns.

    Args:
        table: the table.
        altered: how its columns are altered.
        mark: the mark of the commit. It is made in any case: whether it has been made, the columns tell.
    """
    transaction = table.begin()
    files = transaction.files()
    held = transaction.read()
    transaction.alter(altered.metadata(transaction.metadata()))
    added = transaction.write(altered.rows(held)) if files else []
    now = int(time.time() * 1000)
    removed = [removal(file, now, changes_data=False) for file in files]
    actions = [*removed, *({"add": file | {"dataChange": False}} for file in added)]
    transaction.commit([json.dumps(action) for action in actions], mark)
