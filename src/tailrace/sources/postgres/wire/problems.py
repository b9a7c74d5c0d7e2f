"""Errors for values that cannot be decoded: what was found and how to fix it."""

from __future__ import annotations

from tailrace.errors import DecodeError
from tailrace.sources.postgres.wire.kernels.outcome import BAD_TEXT, NEEDS_TEXT, NO_ROOM, NOT_HELD

_HINT = (
    "name the column in the option `unfitAsNull`: such values are then read as null; or in `textColumns`: all"
    " of its values are then captured as text"
)


class BinaryFormError(DecodeError):
    """A value came in binary form whose type is read as text: the log must be requested as text."""


def refusal(outcome: int, column: str, detail: str | None = None) -> DecodeError:
    """The error for an outcome other than OK.

    Args:
        outcome: a code of `outcome`.
        column: full name of the column.
        detail: the value's position, if known.
    """
    if outcome == NOT_HELD:
        return DecodeError(
            f"a value of column `{column}` does not fit its Arrow type", detail, _HINT, code="TR-5011"
        )
    if outcome == NEEDS_TEXT:
        return BinaryFormError(
            f"a value of column `{column}` came in binary form, but is read as text", detail, code="TR-5012"
        )
    what, code = {
        BAD_TEXT: ("text that is not valid UTF-8", "TR-5203"),
        NO_ROOM: ("values of more than 2 GiB in one batch", "TR-5204"),
    }.get(outcome, ("a value that is not valid for its type", "TR-5203"))
    return DecodeError(f"{what} in column `{column}`", detail, code=code)
