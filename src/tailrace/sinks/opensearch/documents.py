"""Lines of a bulk request, made of whole columns: an action and, unless it deletes, the document.

    {"index":{"_id":"7","version":9,"version_type":"external"}}
    {"id":7,"name":"x","_tailrace_version":9}

A document's id is the text of its key: the value of a single column, a JSON array of several. An id has 512
bytes at most, so that of a longer key is a digest. A document's routing, where its index has one, is made in
the same way, of one column of the key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.encodings.json_documents import row_texts
from tailrace.formats.encodings.layout import Cell, dumps
from tailrace.formats.kernels import value_kinds
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.opensearch.dates import iso_text
from tailrace.sinks.opensearch.mapping import VERSION
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.text_form import as_text

#: Most bytes of an id, and what begins that of a longer key.
_MOST_BYTES = 512
_DIGEST = "sha256:"

#: Errors about lists and ids name no table.
_NO_TABLE = TableSchema(TableId("", "list"), (), ())
_KINDS = {
    pa.int8(): value_kinds.INT8,
    pa.int16(): value_kinds.INT16,
    pa.int32(): value_kinds.INT32,
    pa.int64(): value_kinds.INT64,
    pa.float32(): value_kinds.FLOAT,
    pa.float64(): value_kinds.DOUBLE,
    pa.bool_(): value_kinds.BOOLEAN,
    pa.string(): value_kinds.STRING,
    pa.binary(): value_kinds.BINARY,
}


def index_lines(
    rows: pa.RecordBatch,
    schema: TargetSchema,
    ids: pa.StringArray,
    version: int,
    *,
    routings: pa.StringArray | None = None,
    kept: Mapping[str, pa.StringArray] | None = None,
) -> pa.BinaryArray:
    """The lines that write rows, one text of two lines for each.

    Args:
        rows: the rows; columns that they lack are in `kept`.
        schema: the target's schema.
        ids: the documents' ids.
        version: their version.
        routings: their routings; None: by their ids.
        kept: values of other fields, as JSON texts; null: the document does not have the field.
    """
    label = f'{{"index":{{"version":{version},"version_type":"external","_id":'
    cells = [Cell(label, ids, value_kinds.STRING), *_routing(routings)]
    opening = "}}\n{"
    for name in rows.schema.names:
        cells.append(_cell(f"{opening}{dumps(name)}:", rows.column(name)))
        opening = ","
    for name, texts in (kept or {}).items():
        cells.append(Cell(f"{opening}{dumps(name)}:", texts, value_kinds.RAW))
        opening = ","
    end = f'{opening}"{VERSION}":{version}}}\n'
    return row_texts(cells, end, rows.num_rows, schema.table_schema)


def delete_lines(
    schema: TargetSchema, ids: pa.StringArray, version: int, *, routings: pa.StringArray | None = None
) -> pa.BinaryArray:
    """The lines that delete documents, one for each; see `index_lines`."""
    label = f'{{"delete":{{"version":{version},"version_type":"external","_id":'
    cells = [Cell(label, ids, value_kinds.STRING), *_routing(routings)]
    return row_texts(cells, "}}\n", len(ids), schema.table_schema)


def ids_of(rows: pa.RecordBatch, schema: TargetSchema) -> pa.StringArray:
    """The ids of rows' documents."""
    return references(rows, schema.key)


def references(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.StringArray:
    """The values of columns as one text, which is an id if they are a key; null if the only one is."""
    keys = [rows.column(name) for name in columns]
    if len(keys) == 1:
        return _short(_stored_text(keys[0]))
    cells = [_cell("," if at else "[", key) for at, key in enumerate(keys)]
    return _short(row_texts(cells, "]", rows.num_rows, _NO_TABLE).cast(pa.string()))


def routings_of(rows: pa.RecordBatch, column: str) -> pa.StringArray:
    """The routings of rows' documents."""
    return _short(_stored_text(rows.column(column)))


def _routing(routings: pa.StringArray | None) -> list[Cell]:
    return [] if routings is None else [Cell(',"routing":', routings, value_kinds.STRING)]


def _short(ids: pa.StringArray) -> pa.StringArray:
    """Texts that OpenSearch allows: too long and empty ones become digests."""
    lengths = pc.binary_length(ids)
    long = pc.or_(pc.greater(lengths, _MOST_BYTES), pc.equal(lengths, 0))
    long = pc.or_(long, pc.starts_with(ids, _DIGEST))  # else a key could be the digest of another
    long = pc.fill_null(long, False)
    if not pc.any(long).as_py():
        return ids
    digests = [_DIGEST + hashlib.sha256(text.encode()).hexdigest() for text in ids.filter(long).to_pylist()]
    return pc.replace_with_mask(ids, long, pa.array(digests, pa.string()))


def _cell(label: str, array: pa.Array) -> Cell:
    """A column's values in a document."""
    type_ = array.type
    if pa.types.is_duration(type_):
        return Cell(label, array.cast(pa.int64()), value_kinds.INT64)
    if pa.types.is_list(type_):
        return Cell(label, _lists(array), value_kinds.RAW)
    kind = _KINDS.get(type_)
    if kind is None:
        return Cell(label, _stored_text(array), value_kinds.STRING)
    return Cell(label, array, kind)


def _stored_text(array: pa.Array) -> pa.StringArray:
    """The values as text: dates and times in the form of ISO 8601."""
    if pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_date32(array.type) or pa.types.is_timestamp(array.type):
        return iso_text(array)
    return as_text(array)


def _lists(array: pa.ListArray) -> pa.StringArray:
    """Lists as JSON texts: their elements are encoded as columns are."""
    items = row_texts([_cell("", array.values)], "", len(array.values), _NO_TABLE).cast(pa.string())
    start = array.offsets.to_numpy()
    listed = items.to_pylist()
    valid = array.is_valid().to_pylist()
    texts = [
        f"[{','.join(listed[start[i] : start[i + 1]])}]" if valid[i] else None for i in range(len(array))
    ]
    return pa.array(texts, pa.string())


def json_value(value: object, type_: pa.DataType) -> Any:
    """A value of a column as a document's source has it."""
    texts = row_texts([_cell("", pa.array([value], type_))], "", 1, _NO_TABLE)
    return json.loads(texts[0].as_py())


def plain_texts(values: Sequence[object]) -> pa.StringArray:
    """Values of a document's source as JSON texts again."""
    return pa.array([json.dumps(value, ensure_ascii=False) for value in values], pa.string())
