"""Every error Tailrace raises on purpose.

    TailraceError(message, detail, hint)
    ├── ConfigError            a setting is wrong: names its path and what is allowed
    ├── PreflightError         the server is not set up for capture: carries the findings
    ├── SourceError
    │   ├── TransientSourceError   worth another try: connection lost, server restarting
    │   ├── ServerChangedError     another server answers: positions must be found anew on it
    │   ├── PositionLostError      the log no longer holds what the stream needs
    │   ├── SchemaMismatchError    rows and the table's known shape disagree
    │   └── DecodeError            bytes that cannot be what they claim to be
    ├── StateError             an offset, checkpoint or target that cannot be continued from
    └── SinkError
        └── TransientSinkError     worth another try

`message` is lower case without a full stop and names the object; `detail` says what was found;
`hint` says what to do, with the statement to run, on several lines where it needs them. None of them ever
holds a row's values or a secret. Their text shows control characters of names and server messages escaped.
All are picklable: Spark carries them from tasks to the driver.
"""

from __future__ import annotations

from tailrace.printable import printable, printable_lines, shortened

#: Characters of each part of an error that are shown at most: somebody else's text may be in it.
_LONGEST = 20_000


class TailraceError(Exception):
    """Base of all errors of Tailrace.

    Args:
        message: what went wrong, lower case, no full stop.
        detail: what was found and what was needed, or None.
        hint: what to do about it, with the SQL or setting, or None.
    """

    #: Whether the same call may succeed later without anybody mending anything.
    retryable = False

    def __init__(self, message: str, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, detail, hint)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [printable(shortened(self.message, _LONGEST))]
        if self.detail:
            lines.append(f"Detail: {printable(shortened(self.detail, _LONGEST))}")
        if self.hint:
            lines.append(f"Hint: {printable_lines(shortened(self.hint, _LONGEST))}")
        return "\n".join(lines)


class ConfigError(TailraceError):
    """A setting is missing, unknown or wrong."""


class PreflightError(TailraceError):
    """The server cannot be captured as it is set up."""


class SourceError(TailraceError):
    """Reading from the source failed for good."""


class TransientSourceError(SourceError):
    """Reading failed in a way that usually passes: reconnect and go on."""

    retryable = True


class ServerChangedError(SourceError):
    """Another server answers under the address: positions of the old one must be found anew on it."""


class PositionLostError(SourceError):
    """The log no longer holds the position the stream has to go on from."""


class SchemaMismatchError(SourceError):
    """Rows do not fit the shape the table is known to have."""


class DecodeError(SourceError):
    """Bytes from the server are not what their headers claim."""


class StateError(TailraceError):
    """Stored state (offset, checkpoint, target table) cannot be continued from."""


class SinkError(TailraceError):
    """Writing to the target failed for good."""


class TransientSinkError(SinkError):
    """Writing failed in a way that usually passes."""

    retryable = True
