"""Every error Tailrace raises on purpose.

    TailraceError(message, detail, hint, code="TR-2104")
    ├── ConfigError            a setting is wrong: names its path and what is allowed
    ├── PreflightError         the server is not set up for capture: carries the findings
    ├── SourceError
    │   ├── TransientSourceError   retry: connection lost, server restarting
    │   │   └── TableLockedError       ... and others hold a lock on a table: other tables can continue
    │   ├── ServerChangedError     another server answers: positions must be looked up again on it
    │   ├── PositionLostError      the log no longer holds what the stream needs
    │   │   └── TableGapError          ... of some tables: names them
    │   ├── SchemaMismatchError    rows do not match the table's known schema
    │   │   └── KeyChangedError    the key under which a table is read is gone
    │   └── DecodeError            malformed bytes
    ├── StateError             an offset, checkpoint or target from which the stream cannot continue
    ├── TablesParkedError      everything is read, except for tables that are parked
    ├── ControlError           the control plane refuses what was asked
    │   ├── TransientControlError  retry: its database does not answer
    │   └── LeaseLostError         another server may run the subscription
    └── SinkError
        └── TransientSinkError     retry

`message` is lower case, without a full stop, and names the object. `detail` says what was found. `hint` says
what to do, with the statement to run, on several lines where it needs them. None of them ever holds a row's
values or a secret. Their text shows control characters of names and server messages escaped. `code` names the
condition and stays the same when texts change; `error_catalogue` has the cause and the fix of each.

`table` is the source table that the error concerns, if it concerns one table alone: a pipeline then parks
that table, and all others go on (docs/design/0008-parking.md). Whoever works on one table says so by
`concerning`.

All errors can be pickled. In a Python process of Spark, an error carries itself as a note, in JSON: Spark
reports only the text of a traceback to the driver, where `spark.task_errors` reads the note.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tailrace.printable import printable, printable_lines, shortened

#: Begins the line of a traceback that holds an error as data.
NOTE = "tailrace-error: "
#: Characters of each part of an error that are shown at most: somebody else's text may be in it.
_LONGEST = 20_000


def coded(text: str, code: str | None) -> str:
    """`text` as people see it, followed by the code."""
    return f"{text} [{code}]" if code else text


class TailraceError(Exception):
    """Base class of all errors of Tailrace.

    Args:
        message: what went wrong, lower case, no full stop.
        detail: what was found and what is needed, or None.
        hint: how to fix it, with the SQL or setting, or None.
        code: of the condition, one of `error_catalogue.CATALOGUE`.
        table: the table that it concerns, as `str(TableId)`; None: more than one table, or unknown.
    """

    #: Whether the same call may succeed later without intervention.
    retryable = False

    def __init__(
        self,
        message: str,
        detail: str | None = None,
        hint: str | None = None,
        *,
        code: str | None = None,
        table: str | None = None,
    ) -> None:
        super().__init__(message, detail, hint)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.code = code
        self.table = table
        self._note()

    def _note(self) -> None:
        if "pyspark.worker_util" in sys.modules:  # a Python process of Spark: only tracebacks leave it
            self.add_note(NOTE + self.to_json())

    def concern(self, table: str) -> None:
        """Note that the error concerns one table, unless it says so already."""
        if self.table is None:
            self.table = table
            self._note()  # the last note counts

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled as its class and `args`, and __init__ needs the code for the note.
        return functools.partial(type(self), code=self.code), self.args, self.__dict__

    def json_values(self) -> dict[str, str | None]:
        """What it says, by name: as status, notifications and the control plane's answers hold it."""
        return {"code": self.code, "message": self.message, "detail": self.detail, "hint": self.hint}

    def to_json(self) -> str:
        """Class, message, detail, hint, code, table and what else it has, on one line of ASCII."""
        parts = [part and shortened(part, _LONGEST) for part in (self.message, self.detail, self.hint)]
        # A subclass that another module defines goes by its base class here.
        kind = next(cls.__name__ for cls in type(self).__mro__ if cls.__module__ == __name__)
        return json.dumps([kind, *parts, self.code, self.table, *self._more()])

    def _more(self) -> list[object]:
        """Further arguments of the class, as JSON values."""
        return []

    def __str__(self) -> str:
        lines = [printable(coded(shortened(self.message, _LONGEST), self.code))]
        if self.detail:
            lines.append(f"Detail: {printable(shortened(self.detail, _LONGEST))}")
        if self.hint:
            lines.append(f"Hint: {printable_lines(shortened(self.hint, _LONGEST))}")
        return "\n".join(lines)


class ConfigError(TailraceError):
    """A setting is missing, unknown or wrong."""


class PreflightError(TailraceError):
    """The server's settings do not allow capture."""


class SourceError(TailraceError):
    """Reading from the source failed permanently."""


class TransientSourceError(SourceError):
    """Reading failed for a transient reason: reconnect and continue."""

    retryable = True


class TableLockedError(TransientSourceError):
    """Others hold a lock on a table for longer than a statement waits; other tables can continue."""


class ServerChangedError(SourceError):
    """Another server answers at the address: the old server's positions must be looked up again on it."""


class PositionLostError(SourceError):
    """The log no longer holds the position from which the stream has to continue."""


class TableGapError(PositionLostError):
    """The log lacks changes of some tables, and has those of all others.

    Args:
        message: as for every error.
        detail: as for every error.
        hint: as for every error.
        tables: the tables, as `database.table`.
        code: as for every error.
    """

    def __init__(
        self,
        message: str,
        detail: str | None = None,
        hint: str | None = None,
        tables: Iterable[str] = (),
        *,
        code: str | None = None,
    ) -> None:
        self.tables = tuple(tables)
        super().__init__(message, detail, hint, code=code)

    def _more(self) -> list[object]:
        return [self.tables]


class SchemaMismatchError(SourceError):
    """Rows do not match the table's known schema."""


class KeyChangedError(SchemaMismatchError):
    """The key under which a table's rows are read no longer exists: its cursor means nothing any more."""


class DecodeError(SourceError):
    """Bytes from the server are malformed or contradict their headers."""


class StateError(TailraceError):
    """The stream cannot continue from its stored state (offset, checkpoint, target table)."""


class TablesParkedError(TailraceError):
    """A pipeline has read everything, except for tables that are parked."""


class ControlError(TailraceError):
    """The control plane refuses what was asked: of another version, or not in this state."""


class TransientControlError(ControlError):
    """The database of the control plane does not answer."""

    retryable = True


class LeaseLostError(ControlError):
    """This server may no longer run the subscription."""


class SinkError(TailraceError):
    """Writing to the target failed permanently."""


class TransientSinkError(SinkError):
    """Writing failed for a transient reason."""

    retryable = True


E = TypeVar("E", bound=TailraceError)
#: Conditions, or their subjects, that are of the table that somebody works on, rather than of a server, a
#: target as a whole or a machine. One that a user has asked for (a policy `fail`) is not here.
_OF_A_TABLE = (
    *("TR-15", "TR-2210", "TR-2211", "TR-2212", "TR-2215"),
    *("TR-3009", "TR-3011", "TR-3012", "TR-3018", "TR-3102"),
    *("TR-4303", "TR-4405", "TR-4406", "TR-4407", "TR-50", "TR-52"),
    *("TR-4612", "TR-4613", "TR-4621", "TR-4622"),
    *("TR-6102", "TR-6103", "TR-6104", "TR-6106"),
    *("TR-7001", "TR-7002", "TR-7003", "TR-7004", "TR-7005", "TR-7006"),
    *("TR-7036", "TR-7037", "TR-7038", "TR-7039", "TR-7040", "TR-7061", "TR-7062"),
    *(
        "TR-7102",
        "TR-7203",
        "TR-7205",
        "TR-7320",
        "TR-7321",
        "TR-7323",
        "TR-7324",
        "TR-7325",
        "TR-7407",
        "TR-7503",
        "TR-7505",
        "TR-7507",
        "TR-76",
    ),
    *("TR-7706", "TR-7805", "TR-7806", "TR-7835", "TR-8040"),
)
#: What our own code raises when it meets something of a table that it does not know, in whichever library.
_UNFORESEEN = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, NotImplementedError)


def of_table(error: E, table: str) -> E:
    """`error`, raised by work on a table: it concerns the table if its condition is one of tables."""
    if error.code is not None and error.code.startswith(_OF_A_TABLE):
        error.concern(table)
    return error


@contextmanager
def concerning(table: object, *, sink: bool = False) -> Iterator[None]:
    """Errors raised in this context concern one table.

    Errors of the system (OSError) stay as they are: they tell nothing about the table.

    Args:
        table: a `TableId`, or its text.
        sink: whether a target is written, rather than the source read.

    Raises:
        TailraceError: what was raised, with the table.
    """
    try:
        yield
    except TailraceError as error:
        of_table(error, str(table))
        raise
    except _UNFORESEEN as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        texts = (
            f"table `{table}` has something that is not foreseen",
            f"{type(error).__name__}{where}",
            "the traceback is in the log file: please report it",
        )
        if sink:
            raise SinkError(*texts, code="TR-8040", table=str(table)) from error
        raise SourceError(*texts, code="TR-8040", table=str(table)) from error


def from_json(text: str, at: int = 0) -> TailraceError:
    """The error that `to_json` wrote.

    Args:
        text: contains it; more may follow.
        at: its offset in `text`.

    Raises:
        ValueError: there is none.
    """
    parts = json.JSONDecoder().raw_decode(text, at)[0]
    if 4 <= len(parts) < 6:  # of a version before codes, or before tables
        parts = [*parts, *[None] * (6 - len(parts))]
    name, message, detail, hint, code, table, *more = parts
    kind = globals().get(str(name))
    if not (isinstance(kind, type) and issubclass(kind, TailraceError)):
        raise ValueError(f"no class of errors: {name}")
    found = kind(message, detail, hint, *more, code=code)
    if table is not None:
        found.concern(table)
    return found
