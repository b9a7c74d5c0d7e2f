"""Spark's schemas in Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.spark import RELEASE

#: How a release of Spark is asked for instants in UTC.
_IN_UTC: dict[str, Any] = {"timestamp_utc": True} if RELEASE == "4.1" else {"timezone": "UTC"}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema; instants are in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)
