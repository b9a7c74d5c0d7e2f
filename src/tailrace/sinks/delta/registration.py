"""Names of Delta tables in a catalog of Spark: each target is registered there as an external table.

The table stays at its path, and its log says what it is: a name needs no change when the table's columns do.
So a target is registered once per run, after the first batch that it has rows in. A run that is killed in
between registers it the next time.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tailrace.errors import SinkError, TransientSinkError

#: A dot with something else on both sides: `a.b` is table `b` in schema `a`.
_SEPARATOR = re.compile(r"(?<=[^.])\.(?=[^.])")


def registered_name(catalog: str, target: str) -> tuple[str, ...]:
    """The catalog, the schemas and the name of a target."""
    names = _SEPARATOR.split(target)
    return (catalog, *(names if len(names) > 1 else ("default", *names)))


class Registration:
    """Registers the targets of a stream.

    Args:
        catalog: the catalog's name in Spark.
    """

    def __init__(self, catalog: str) -> None:
        self._catalog = catalog
        self._done: set[str] = set()

    def add(self, session: SparkSession, target: str, path: str) -> None:
        """Register a target, unless this run has.

        Args:
            session: a session that has the catalog.
            target: the target's name.
            path: its path, where the table is.

        Raises:
            SinkError: the catalog takes no such table, or has another one of this name.
            TransientSinkError: the catalog does not answer.
        """
        if target in self._done:
            return
        names = registered_name(self._catalog, target)
        name = _quoted(names)
        try:
            session.sql(f"CREATE SCHEMA IF NOT EXISTS {_quoted(names[:-1])}")
            session.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{_text(path)}'")
            held, ours = (_id(session, table) for table in (name, f"delta.{_quoted((path,))}"))
        except AnalysisException as error:
            raise SinkError(
                f"target `{target}` cannot be registered as {name}",
                _first_line(error),
                "does `pipeline.spark` name the catalog (spark.sql.catalog.NAME), and does it take Delta"
                " tables and this name? Else change the `sink-table` of the route",
                code="TR-7103",
            ) from None
        except (Py4JJavaError, PySparkException) as error:
            raise TransientSinkError(
                f"target `{target}` is not registered as {name}",
                _first_line(error),
                "the catalog must run, be within reach and let its user create tables",
                code="TR-7104",
            ) from None
        if held != ours:
            raise SinkError(
                f"the catalog has another table {name}",
                f"it is not the one at `{path}`",
                "drop it from the catalog, or change the `sink-table` of the route",
                code="TR-7105",
            )
        self._done.add(target)


def _id(session: SparkSession, table: str) -> str:
    """The id that a Delta table has for life."""
    (row,) = session.sql(f"DESCRIBE DETAIL {table}").select("format", "id").collect()
    return str(row["id"] if row["format"] == "delta" else row["format"])


def _quoted(names: tuple[str, ...]) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _text(path: str) -> str:
    return path.replace("\\", "\\\\").replace("'", "\\'")


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error)
    return text.strip().partition("\n")[0]
