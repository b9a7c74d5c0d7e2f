"""What an error that nobody foresaw says, without values of rows.

Spark's own errors of data (classes 22 and 23 of SQLSTATE: a cast that fails, a constraint that is violated)
quote the value, and errors are printed, sent and stored. Their condition tells what is wrong; the whole
message is in the log file, which only its owner reads.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

#: A line with an exception's class and message.
_CAUSE = re.compile(r"(Caused by: )?(\w+\.)*\w*(Error|Exception): ")
#: Begins Spark's message of an error in data, over several lines perhaps.
_CONDITION = re.compile(r"(?P<kind>[\w.]+: )?\[(?P<condition>[A-Z][A-Z0-9_.]*)\] ")
_OF_DATA = re.compile(r"SQLSTATE: (2[23][0-9A-Z]{3})\b")
#: A line with the class of an error of Python, or of Spark's analysis: not of the system, nor of a store.
_UNFORESEEN = re.compile(
    r"(\w+\.)*(Value|Key|Index|Type|Attribute|Overflow|ZeroDivision|NotImplemented|Assertion)Error: "
    r"|(\w+\.)*Arrow(Invalid|TypeError|KeyError|NotImplementedError|CapacityError): "
    r"|(\w+\.)*AnalysisException: "
)


def cause_of(error: Exception) -> str:
    """The line with the cause of an error: the innermost in Spark's text, in whichever language."""
    if not isinstance(error, Py4JError | PySparkException):
        return f"{type(error).__name__}: {error}"
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if _CAUSE.match(line)]
    cause = next(reversed(causes), next(iter(lines), type(error).__name__))
    condition, state = _CONDITION.match(cause), _OF_DATA.search(text)
    if condition is None or state is None:
        return cause
    return f"{condition['kind'] or ''}[{condition['condition']}] SQLSTATE: {state[1]}"


def is_of_rows(cause: str) -> bool:
    """Whether a table's rows or schema may be the cause, rather than the system or a store."""
    return _UNFORESEEN.match(cause) is not None
