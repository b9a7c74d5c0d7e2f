"""What a replica holds of a stream: its ledger, which is in the same transactions as the rows."""

from __future__ import annotations

from contextlib import closing

from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.sinks.replica.ledger import Ledger
from tailrace.sinks.replica.sink import open_dialect


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
