"""Keeping the captured tables in an archive, all as of one position: what a table is restored from."""

from __future__ import annotations

from contextlib import closing

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sources.archive.bases import Base, write_base
from tailrace.sources.postgres.archiving.moment import Moment, altered, read_tables, state_of
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.connection import connect, retrying
from tailrace.sources.postgres.replication.archive.archived import require_same
from tailrace.sources.postgres.replication.archive.segment import WalArchive
from tailrace.sources.postgres.waits.notices import say

#: In the state of a base: the tables' states, and the server's clock before it was begun.
STATES, CLOCK = "tables", "clock_us"
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"


def keep_base(options: SourceOptions, archive: WalArchive) -> Base:
    """Keep the captured tables that are published.

    Raises:
        ConfigError: none is; or the archive is of another database or publication.
        TransientSourceError: a table was altered meanwhile, or the snapshot waits for others.
        TailraceError: the server refuses, or cannot be reached.
    """
    require_same(archive, options)
    # transactions that were running when a table was published have some changes of it in the log, and some
    # not: the snapshot shows those that had ended before it was requested, if the table was published then
    clock_us, before = retrying(options, lambda: _before(options), "reading the catalog")
    with closing(Moment(options)) as moment:
        states = {}
        for table in moment.tables:
            state = moment.state(table)
            if state is None:
                say(f"table `{table}` is not kept: its changes are not in the log of the publication")
            elif before.get(table) != state:
                raise altered(table)
            else:
                states[table] = state
        if not states:
            raise ConfigError(
                "there is nothing to keep",
                f"no captured table is in publication `{options.publication}`",
                "start `tailrace archive PIPELINE.YAML`, which publishes them; or correct `tables`",
                code="TR-8216",
            )
        return write_base(
            archive,
            moment.position.to_json(),
            ((moment.tables[table].schema, moment.rows(table)) for table in states),
            {STATES: {str(table): state.to_json() for table, state in states.items()}, CLOCK: clock_us},
        )


def _before(options: SourceOptions) -> tuple[int, dict[TableId, TableState | None]]:
    """The server's clock, then the tables' states."""
    with connect(options, purpose="reading the catalog") as connection:
        clock_us = int(connection.value(_CLOCK))
        published, tables = read_tables(connection, options)
        return clock_us, {id_: state_of(table, published) for id_, table in tables.items()}
