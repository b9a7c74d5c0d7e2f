"""Masks of columns: values are changed before a change leaves its task, after everything that compares rows.

    truncate    the first characters of a text, or bytes of bytes
    stars       the same text for each value, NULL too
    hash        of salt and text, in hex, cut to the column's length

A column's type stays as it is. A text is counted as Java counts it: a character beyond U+FFFF counts twice,
and one that would be cut in half is left out. Key columns cannot be masked: rows are known by them.

Source: debezium/debezium v3.6.1 (`ColumnMappers`, `MaskStrings`, `TruncateColumn`); Java Object Serialization
Specification, "Grammar for the Stream Format".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError, concerning
from tailrace.model.change import ChangeBatch
from tailrace.model.column_mask import ColumnMask, MaskKind
from tailrace.model.messages import MESSAGES
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind

#: Java's serial form of a text: magic number, version, TC_STRING or TC_LONGSTRING.
_SHORT, _LONG = b"\xac\xed\x00\x05t", b"\xac\xed\x00\x05|"
_MOST_SHORT = 0xFFFF


@dataclass(frozen=True)
class Masks:
    """The masks of a stream.

    Args:
        masks: the masks; of those of a column the first in the order of their kinds counts.
        salt: the salt of hashes.
    """

    masks: Sequence[ColumnMask]
    salt: bytes

    def changes(self, found: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
        """Changes with masked values.

        Raises:
            SchemaMismatchError: a column cannot be masked.
        """
        for batch in found:
            with concerning(batch.table.id):
                masked = self.batch(batch)
            yield masked

    def batch(self, changes: ChangeBatch) -> ChangeBatch:
        """See `changes`."""
        masks = {} if changes.table.id == MESSAGES.id else self.of(changes.table)
        if not masks:
            return changes
        before, after = (
            None if image is None else self._image(image, changes.table, masks, absent)
            for image, absent in (
                (changes.before, changes.absent_before),
                (changes.after, changes.absent_after),
            )
        )
        return replace(changes, before=before, after=after)

    def of(self, table: TableSchema) -> dict[str, ColumnMask]:
        """The masks of a table's columns.

        Raises:
            SchemaMismatchError: a column cannot be masked.
        """
        found = {}
        for column in table.columns:
            mask = next((m for m in self.masks if m.has(table.id, column.name)), None)
            if mask is not None:
                _check(table, column, mask)
                found[column.name] = mask
        return found

    def _image(
        self, image: pa.StructArray, table: TableSchema, masks: dict[str, ColumnMask], absent: Sequence[str]
    ) -> pa.StructArray:
        columns = [
            self._masked(image.field(at), column, masks[column.name])
            if column.name in masks and column.name not in absent
            else image.field(at)
            for at, column in enumerate(table.columns)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(image.type), mask=image.is_null())

    def _masked(self, array: pa.Array, column: Column, mask: ColumnMask) -> pa.Array:
        match mask.kind:
            case MaskKind.TRUNCATE:
                return _cut(array, mask.length)
            case MaskKind.STARS:
                return pa.repeat(pa.scalar("*" * mask.length, array.type), len(array))
        length = column.type.length
        encoded = array.dictionary_encode()
        hashes = [self._hash(text, mask) for text in encoded.dictionary.to_pylist()]
        made = [text if not length else text[:length] for text in hashes]
        return pa.array(made, array.type).take(encoded.indices)

    def _hash(self, text: str, mask: ColumnMask) -> str:
        data = text.encode() if mask.kind is MaskKind.HASH_V2 else _serial(text)
        return hashlib.new(mask.algorithm, self.salt + data, usedforsecurity=False).hexdigest()


def _check(table: TableSchema, column: Column, mask: ColumnMask) -> None:
    kinds = (Kind.STRING, Kind.BYTES) if mask.kind is MaskKind.TRUNCATE else (Kind.STRING,)
    if column.name in table.key:
        raise SchemaMismatchError(
            f"key column `{column.name}` of table `{table.id}` cannot be masked",
            f"`{mask.name}` names it; rows are known by their key",
            "do not match the column; to hide its values from targets, hash it in a transform",
            code="TR-1071",
        )
    if column.type.kind not in kinds:
        raise SchemaMismatchError(
            f"column `{column.name}` of table `{table.id}` cannot be masked",
            f"`{mask.name}` names it, and its type is {column.type.native}; texts can be masked, texts and "
            "bytes cut",
            "do not match the column; leave it out by `column.exclude.list`, or change it in a transform",
            code="TR-1071",
        )


def _cut(array: pa.Array, length: int) -> pa.Array:
    """Texts and bytes that are no longer than `length`."""
    if not pa.types.is_string(array.type):
        return pc.binary_slice(array, 0, length)
    cut = pc.utf8_slice_codeunits(array, 0, length)
    is_wide = pc.match_substring_regex(array, "[\\x{10000}-\\x{10FFFF}]")
    if not pc.any(is_wide).as_py():
        return cut
    texts = pa.array([None if t is None else _cut_text(t, length) for t in array.to_pylist()], array.type)
    return pc.if_else(is_wide, texts, cut)


def _cut_text(text: str, length: int) -> str:
    return text.encode("utf-16-le")[: 2 * length].decode("utf-16-le", "ignore")


def _serial(text: str) -> bytes:
    """A text as Java's ObjectOutputStream writes it."""
    data = text.encode()
    if "\0" in text or any(character > "\uffff" for character in text):
        units = text.encode("utf-16-be")
        characters = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
        data = b"".join(
            chr(unit).encode("utf-8", "surrogatepass") if unit else b"\xc0\x80" for unit in characters
        )
    if len(data) <= _MOST_SHORT:
        return _SHORT + len(data).to_bytes(2) + data
    return _LONG + len(data).to_bytes(8) + data
