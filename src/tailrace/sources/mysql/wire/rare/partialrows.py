"""PARTIAL_UPDATE_ROWS events, converted to the UPDATE_ROWS events they stand for.

A row is a before image as usual, then

    value options   length-encoded integer; lowest bit: JSON columns may be differences
    partial bits    then only: a bit for each JSON column of the table, present or not, set for differences
    after image     as usual; a JSON column whose bit is set holds `jsondiff`'s list in place of a value

The differences are applied to the row's own before image. So the row kernel reads these events too.

Source: mysql libs/mysql/binlog/event/rows_event.h, class Rows_event; sql/log_event.cc,
Rows_log_event::print_verbose_one_row.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.mysql.wire.kernels.rowcount import columns_of, plan_of
from tailrace.sources.mysql.wire.rare.jsondiff import apply_diffs, packed
from tailrace.sources.mysql.wire.schema.tablemap import JSON

#: Type of the event that `whole` makes.
UPDATE_ROWS = 31
_PARTIAL_JSON = 1
_MALFORMED = "malformed row event"


class PartialUpdates:
    """Partial updates of one table with one schema.

    Args:
        body: the table's TABLE_MAP event without header and checksum.
        names: names of its columns, for errors.
    """

    def __init__(self, body: bytes, names: Sequence[str]) -> None:
        self._types = columns_of(body)
        self._steps = plan_of(body).tolist()[:-1]
        self._names = names

    def whole(self, event: bytes) -> bytes:
        """The UPDATE_ROWS event that a PARTIAL_UPDATE_ROWS event stands for.

        Args:
            event: with its header, without a checksum.

        Raises:
            DecodeError: it is malformed; the detail names the row and the column.
            SchemaMismatchError: a value's differences came without the value before.
        """
        count = len(self._types)
        try:
            at = ev.HEADER + 8
            at += int.from_bytes(event[at : at + 2], "little")  # the extra data's length counts itself
            shown, at = packed(event, at)
            bytes_ = (count + 7) // 8
            before, after = event[at : at + bytes_], event[at + bytes_ : at + 2 * bytes_]
            at += 2 * bytes_
            if shown != count or at > len(event):
                raise DecodeError(_MALFORMED, f"{shown} columns, the table has {count}", code="TR-5201")
        except IndexError as error:
            raise DecodeError(_MALFORMED, "cut off", code="TR-5201") from error
        out = bytearray(event[:at])
        out[4] = UPDATE_ROWS
        row = 0
        while at < len(event):
            started = at
            try:
                old, at = self._image(event, at, before)
                out += event[started:at]
                at = self._after(event, at, after, old, out)
            except IndexError as error:
                raise DecodeError(_MALFORMED, f"row {row} is cut off", code="TR-5201") from error
            except (DecodeError, SchemaMismatchError) as error:
                raise type(error)(
                    error.message, f"row {row} of the event, {error.detail}", error.hint, code=error.code
                ) from error
            if at == started:
                raise DecodeError(_MALFORMED, "rows without bytes", code="TR-5201")
            row += 1
        return bytes(out)

    def _after(
        self, event: bytes, at: int, present: bytes, old: dict[int, tuple[int, int, int]], out: bytearray
    ) -> int:
        """Append the after image at `at`, with whole values; the offset after it."""
        options, at = packed(event, at)
        partial: set[int] = set()
        if options & _PARTIAL_JSON:
            columns = [i for i, type_ in enumerate(self._types) if type_ == JSON]
            partial = {c for i, c in enumerate(columns) if _bit(event, at, i)}
            at += (len(columns) + 7) // 8
        spans, end = self._image(event, at, present)
        first = min((start - width for start, _, width in spans.values()), default=end)
        out += event[at:first]
        for column, (start, stop, width) in spans.items():
            if column not in partial:
                out += event[start - width : stop]
                continue
            named = f"column `{self._names[column]}`"
            if column not in old:
                raise SchemaMismatchError(
                    "the log holds an update of part of a JSON value without the previous value",
                    named,
                    "SET PERSIST binlog_row_value_options = '', or binlog_row_image = FULL; "
                    "then take a new snapshot of what was logged before",
                    code="TR-4405",
                )
            try:
                value = apply_diffs(event[slice(*old[column][:2])], event[start:stop])
            except DecodeError as error:
                raise DecodeError(error.message, f"{named}: {error.detail}", code=error.code) from error
            out += len(value).to_bytes(width, "little") + value
        return end

    def _image(self, event: bytes, at: int, present: bytes) -> tuple[dict[int, tuple[int, int, int]], int]:
        """Offsets of an image's values, the bytes of length before each, and the offset after the image."""
        shown = [i for i in range(len(self._steps)) if _bit(present, 0, i)]
        nulls = at
        at += (len(shown) + 7) // 8
        spans = {}
        for bit, column in enumerate(shown):
            if _bit(event, nulls, bit):
                continue
            size, width = self._steps[column], 0
            if size < 0:
                width = -size
                if width > len(event) - at:
                    raise IndexError
                size = int.from_bytes(event[at : at + width], "little")
            at += width
            spans[column] = (at, at + size, width)
            at += size
        if at > len(event):
            raise IndexError
        return spans, at


def _bit(data: bytes, at: int, i: int) -> bool:
    return bool(data[at + (i >> 3)] >> (i & 7) & 1)
