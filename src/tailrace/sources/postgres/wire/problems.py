"""Why a value could not be read, in words: what was found and what to do."""

from __future__ import annotations

from tailrace.errors import DecodeError
from tailrace.sources.postgres.wire.kernels.outcome import BAD_TEXT, NEEDS_TEXT, NO_ROOM, NOT_HELD

_TEXT_HINT = "name the column in the option `textColumns`, and it is captured as text, every value of it"


class BinaryFormError(DecodeError):
    """A value came in binary form whose type is read as text: the log is to be asked for as text."""


def refusal(outcome: int, column: str, detail: str | None = None) -> DecodeError:
    """The error for an outcome other than OK.

    Args:
        outcome: a code of `outcome`.
        column: full name of the column.
        detail: where the value is, if that is known.
    """
    if outcome == NOT_HELD:
        return DecodeError(f'a value of column "{column}" does not fit its Arrow type', detail, _TEXT_HINT)
    if outcome == NEEDS_TEXT:
        return BinaryFormError(
            f'a value of column "{column}" came in binary form, it is read as text', detail
        )
    what = {
        BAD_TEXT: "text that is not valid UTF-8",
        NO_ROOM: "values of more than 2 GiB in one batch",
    }.get(outcome, "a value of a form that its type cannot have")
    return DecodeError(f'{what} in column "{column}"', detail)
