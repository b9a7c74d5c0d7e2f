"""The changes of one table in a range of the log: exactly as a kept state of it has them, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication.logreader import LogReader
from tailrace.sources.postgres.wire.pgoutput import LogDecoder, Truncate
from tailrace.sources.postgres.wire.relation import Relation
from tailrace.sources.postgres.wire.types import PostgresTypes

#: Where the LSN of the commit stands in a `seq` (`position.seq_of`).
_COMMIT = 4, 20


@dataclass(frozen=True)
class KeptTable:
    """A table as it was at a position.

    Args:
        schema: its columns and key.
        state: what the catalog said of it.
        position: the position.
    """

    schema: TableSchema
    state: TableState
    position: PostgresPosition


def table_changes(
    options: SourceOptions, kept: KeptTable, end: PostgresPosition, *, slot: str, sure: PostgresPosition
) -> Iterator[ChangeBatch | None]:
    """The changes of a table from a kept state on, up to a position, in log order; None: it was emptied.

    Args:
        options: the server, with its archive.
        kept: the table as it was.
        end: the position.
        slot: the archive's, which has the log that the archive does not have yet.
        sure: up to there the table is known to have been the same.

    Raises:
        SourceError: the log shows the table otherwise than it was kept, or changes behind `sure`.
        PositionLostError: neither the archive nor the server has that part of the log.
        TailraceError: the log cannot be read.
    """
    table, start = kept.schema.id, kept.position
    if end.lsn <= start.lsn:
        return

    def described(relation: Relation) -> TableSchema | None:
        if why := kept.state.difference(kept.schema, relation):
            raise _not_the_same(kept, f"the log shows behind it that the table was altered: {why}")
        return kept.schema

    given = replace(options, slot_name=slot, publication_name=options.publication)
    with closing(LogReader(given, start, end, binary=False)) as reader:
        reader.history.require(end, options)
        decoder = LogDecoder(
            captures=lambda other: other == table,
            types=PostgresTypes(),
            keys={table: kept.schema.key},
            described=described,
            after=start.lsn,
            end=end.lsn,
        )
        for piece in reader:
            batches = [batch for batch in decoder.feed(piece) if len(batch)]
            truncates = list(decoder.truncates)
            decoder.truncates.clear()
            commits = [int(pc.max(_commits(batch)).as_py(), 16) for batch in batches]
            commits += [truncate.commit_lsn for truncate in truncates]
            if commits and max(commits) >= sure.lsn:
                raise _not_the_same(kept, f"nothing shows that the table was the same behind `{sure}`")
            if truncates:
                yield None
                batches = [_behind(batch, truncates[-1]) for batch in batches]
            yield from (batch for batch in batches if len(batch))


def _not_the_same(kept: KeptTable, why: str) -> SourceError:
    return SourceError(
        f"table `{kept.schema.id}` cannot be restored from the base at `{kept.position}`",
        why,
        "restore it as of an earlier time; tailrace archive PIPELINE.YAML --base keeps the captured tables: "
        "take one regularly, and behind each schema change",
        code="TR-8211",
    )


def _commits(batch: ChangeBatch) -> pa.StringArray:
    """The LSN of each change's commit, 16 hex digits."""
    return pc.utf8_slice_codeunits(batch.origin.column("seq"), *_COMMIT)


def _behind(batch: ChangeBatch, truncate: Truncate) -> ChangeBatch:
    """The changes behind a TRUNCATE."""
    commit, at = _commits(batch), f"{truncate.commit_lsn:016x}"
    later = pc.and_(pc.equal(commit, at), pc.greater(batch.origin.column("pos"), truncate.lsn))
    return batch.take(pc.indices_nonzero(pc.or_(pc.greater(commit, at), later)))
