"""What a replica holds of a stream: its ledger, which is in the same transactions as the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.sinks.quarantine import QuarantinedRow
from tailrace.sinks.replica.dialect import WriteSession
from tailrace.sinks.replica.ledger import Ledger
from tailrace.sinks.replica.sink import open_dialect

Found = TypeVar("Found")


def newest_batches(
    settings: MySqlSettings | PostgresSettings, source: str, stream: str
) -> dict[str, int | None]:
    """The newest batch that each target of the stream has a part of, by the target's name."""
    dialect = open_dialect(settings, source)
    ledger = Ledger(dialect)
    with closing(dialect.connect()) as session:
        if not session.columns(ledger.own_table("_tailrace")):
            return {}
        ours = f"stream = {dialect.literal(stream)}"
        rows = session.run(f"SELECT target, begun FROM {ledger.targets} WHERE {ours} ORDER BY target")
        return {str(target): int(begun) if int(begun) >= 0 else None for target, begun in rows}


@dataclass(frozen=True)
class ReplicaQuarantine:
    """See `SinkQuarantine`.

    Args:
        settings: the sink's.
        source: the dialect of the stream's source.
        stream: the stream's id.
    """

    settings: MySqlSettings | PostgresSettings
    source: str
    stream: str

    def rows(self) -> list[QuarantinedRow]:
        """See `SinkQuarantine`."""
        return self._with(lambda ledger, session: ledger.quarantined_rows(session, self.stream), [])

    def clear(self, table: str) -> int:
        """See `SinkQuarantine`."""
        return self._with(lambda ledger, session: ledger.clear_quarantined(session, self.stream, table), 0)

    def _with(self, ask: Callable[[Ledger, WriteSession], Found], nothing: Found) -> Found:
        dialect = open_dialect(self.settings, self.source)
        ledger = Ledger(dialect)
        with closing(dialect.connect()) as session:
            if not session.columns(ledger.own_table("_tailrace_quarantine")):
                return nothing
            return ask(ledger, session)
