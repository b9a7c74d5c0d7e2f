"""Message keys of other columns than the table's key: Debezium's `message.key.columns`.

The cells of a batch have the keys of their tables: an update that changes such a key is a delete and a create
there. With another message key, an update that changes that one becomes a delete and a create, and the halves
of an update that does not change it become an update again. So the messages of a message key say all that
happens to its rows, as by Debezium.

Source: debezium/debezium (`Key.CustomKeyMapper`, `RelationalChangeRecordEmitter`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.config.table_columns import TableColumns
from tailrace.errors import SinkError
from tailrace.formats.debezium.headers import key_updates
from tailrace.formats.encodings.json_documents import operations
from tailrace.model.change import OP_DELETE, OP_TRUNCATE, OP_UPDATE, ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableSchema
from tailrace.reader.log import equal_values, split_updates


def named_columns(columns: TableColumns | None, table: TableSchema) -> tuple[str, ...]:
    """The columns that a setting names for a table, in the table's order; empty: it names none.

    Raises:
        SinkError: the table does not have one of them.
    """
    named = frozenset[str]() if columns is None or table == MESSAGES else columns.of(str(table.id))
    if named and (missing := named.difference(table.arrow.names)) and table.columns:
        assert columns is not None
        has = ", ".join(f"`{name}`" for name in table.arrow.names)
        raise SinkError(
            f"table `{table.id}` has no column `{min(missing)}`",
            f"`{columns.setting}` names it; the table has {has}",
            "correct the setting; its patterns are matched against the whole `database.table`",
            code="TR-7610",
        )
    return tuple(name for name in table.arrow.names if name in named)


def with_key(table: TableSchema, key: tuple[str, ...]) -> TableSchema:
    """A table with another key."""
    return table if table.key == key else replace(table, key=key)


def keyed(batch: ChangeBatch, key: tuple[str, ...]) -> ChangeBatch:
    """A batch whose changes have another key.

    Args:
        batch: changes of one table, not yet counted in their transactions.
        key: the columns of the message key.

    Raises:
        SinkError: the log does not have these columns of rows before or after a change.
    """
    if key == batch.table.key:
        return batch
    assert batch.order is None
    ops = operations(batch)
    if not (ops == OP_TRUNCATE).all():
        _check_known(batch, key)
        batch = _split(_joined(batch, key), key)
    return replace(batch, table=with_key(batch.table, key))


def _check_known(batch: ChangeBatch, key: tuple[str, ...]) -> None:
    ops = operations(batch)
    lacking = [name for name in key if name in batch.absent_after and (ops != OP_DELETE).any()]
    if np.isin(ops, (OP_UPDATE, OP_DELETE)).any():
        lacking += [name for name in key if name in batch.absent_before]
    if updates := np.flatnonzero(ops == OP_UPDATE).tolist():
        has_before = batch.before is not None and not batch.before.take(pa.array(updates)).null_count
        # an update without the row before it leaves the table's own key as it is
        lacking += [] if has_before else [name for name in key if name not in batch.table.key]
    if lacking:
        raise SinkError(
            f"the log does not hold the message key of changed rows of table `{batch.table.id}`",
            f"without the column {lacking[0]}, which `message-key-columns` names",
            "SET GLOBAL binlog_row_image = 'FULL' (MySQL); "
            f"ALTER TABLE {batch.table.id.sql} REPLICA IDENTITY FULL (PostgreSQL)",
            code="TR-4405",
        )


def _joined(batch: ChangeBatch, key: tuple[str, ...]) -> ChangeBatch:
    """The batch with the halves of an update of the table's key as one update, where `key` is the same."""
    first = key_updates(batch)
    if not len(first) or batch.before is None or batch.after is None:
        return batch
    old, new = batch.before.take(pa.array(first)), batch.after.take(pa.array(first + 1))
    first = first[_same(old, new, key)]
    if not len(first):
        return batch
    ops, after_at, stays = operations(batch).copy(), np.arange(len(batch)), np.ones(len(batch), bool)
    ops[first] = OP_UPDATE
    after_at[first] += 1
    stays[first + 1] = False
    joined = replace(batch, op=pa.array(ops, pa.int8()), after=batch.after.take(pa.array(after_at)))
    return joined.take(pa.array(np.flatnonzero(stays)))


def _split(batch: ChangeBatch, key: tuple[str, ...]) -> ChangeBatch:
    """The batch with each update of `key` as a delete and a create."""
    if batch.before is None or batch.after is None:
        return batch
    moved = operations(batch) == OP_UPDATE
    moved &= batch.before.is_valid().to_numpy(zero_copy_only=False)
    moved &= ~_same(batch.before, batch.after, key)
    return split_updates(batch, moved)


def _same(old: pa.StructArray, new: pa.StructArray, key: tuple[str, ...]) -> np.ndarray:
    """For each pair of rows whether they have the same key."""
    same = np.ones(len(old), bool)
    for name in key:
        same &= equal_values(old.field(name), new.field(name))
    return same
