"""Errors raised in tasks, parsed on the driver: Spark reports a failure in Python as its traceback text.

In Spark's Python processes a TailraceError carries itself as a note (`TailraceError.to_json`), and so the
traceback holds it as data: one line of ASCII JSON after the text for people. A name or a server's message in
that text cannot forge the line, because the last one counts.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tailrace.errors import NOTE, ConfigError, TailraceError, from_json

_NOTE = re.compile(rf"^{NOTE}(?=\[)", re.MULTILINE)
#: Attribute of a failure of Spark: the table that it was about.
_TABLE = "tailrace_table"
#: Spark's messages if a Python that it starts lacks our package: the driver's, an executor's.
_NO_TAILRACE = re.compile(
    r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: tailrace"
    r"|port number from tailrace\.spark\.daemon's stdout"
    r"|ModuleNotFoundError: No module named '(tailrace|pyspark_tailrace|numpy|pyarrow)\b"
)


def missing_package(text: str) -> ConfigError | None:
    """An error if `text`, a message of Spark, shows that a Python of Spark does not find tailrace."""
    if not _NO_TAILRACE.search(text):
        return None
    return ConfigError(
        "the Python of Spark's workers does not find tailrace",
        f"PYSPARK_PYTHON is `{os.environ.get('PYSPARK_PYTHON', 'python3')}`; the driver's Python is "
        f"`{sys.executable}`",
        "set PYSPARK_PYTHON to a Python with tailrace; on a cluster it must be there on every worker: install"
        " the package tailrace, use an image that has it, or send an environment with `spark.archives`"
        " (docs/guides/clusters.md, Bring Tailrace to the workers)",
        code="TR-1210",
    )


def parse_error(text: str) -> TailraceError | None:
    """Parse the last error of Tailrace in a traceback.

    Args:
        text: Spark's message, which contains the Python traceback of the process that failed.

    Returns:
        The error; None if the text contains none.
    """
    for note in reversed(list(_NOTE.finditer(text))):
        try:
            return from_json(text, note.end())  # Spark may append its own words to the line
        except (ValueError, TypeError):
            continue
    return None


@contextmanager
def task_errors_concerning(table: object) -> Iterator[None]:
    """Failures of Spark in this context are of one table, as far as `error_of_table` can tell."""
    try:
        yield
    except PySparkException as error:
        error.__dict__.setdefault(_TABLE, str(table))
        raise


def error_of_table(error: BaseException) -> str | None:
    """The table to which `task_errors_concerning` has attributed a failure of Spark."""
    found: str | None = error.__dict__.get(_TABLE)
    return found
