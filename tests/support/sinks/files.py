"""Change logs as files in the contract suite."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

from tailrace.config.sinks import JsonSettings, ParquetSettings
from tailrace.sinks.files import FileSink
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.delta import changes_of

#: Every column of the suite's tables, as their readers declare it.
_TYPES = {
    "id": "bigint",
    "name": "string",
    "price": "decimal(10, 2)",
    "at": "timestamp_ntz",
    "data": "binary",
    "note": "string",
    "b c": "string",
    "_batch": "string",
}


def parquet(request: Any) -> SinkCase:
    return _case(request, ParquetSettings)


def json_lines(request: Any) -> SinkCase:
    return _case(request, JsonSettings)


def _case(request: Any, settings: type[ParquetSettings] | type[JsonSettings]) -> SinkCase:
    spark, path = request.getfixturevalue("spark"), request.getfixturevalue("tmp_path")

    def changes(name: str) -> list[Change]:
        reader = spark.read.format(settings.type)
        held = [c for c in reader.option("mergeSchema", False).load(str(path / name)).columns if c in _TYPES]
        if settings.type == "parquet":
            held = _columns_of_all_files(spark, path / name)
        row = ", ".join(f"`{c}` {_TYPES[c]}" for c in held)
        schema = f"{row}, _op string, _seq string, _before struct<{row}>"
        return changes_of(spark.read.format(settings.type).schema(schema).load(str(path / name)))

    return SinkCase(
        lambda router: FileSink(settings(str(path)), router),
        lambda name: rmtree(path / name),
        changes=changes,
    )


def _columns_of_all_files(spark: Any, path: Path) -> list[str]:
    found: dict[str, None] = {}
    for directory in sorted(path.glob("tailrace_batch=*")):
        found |= dict.fromkeys(c for c in spark.read.parquet(str(directory)).columns if c in _TYPES)
    return list(found)
