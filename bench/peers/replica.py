"""The peer of replicas in PostgreSQL: Flink SQL, from Flink CDC's table into one of Flink's JDBC connector.

It makes a table of its own beside Tailrace's replica, in the same server and defined alike, out of the same
rows and then the same stretch of the log. Each takes its turn:

    Tailrace: snapshot -> peer: snapshot -> changes are made -> Tailrace: log -> peer: log

Each of the peer's turns comes between VACUUM and CHECKPOINT, so that neither shares the server with what the
other left behind. A turn is a job of its own, a bounded snapshot or the log from a position on: that spares
the peer the way from one to the other. Its rate is the better of the two that `watch` takes, of what is there
in the target, without its start; Tailrace's is that of all its batches. At the end count and sums must be the
source's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import data
from bench.data import Place
from bench.peers import watch
from bench.peers.peers import FLINK_REPLICA, FLINK_VERSION
from bench.peers.toolkit import UnavailableError
from bench.peers.watch import PeerRun
from bench.report import Figure
from bench.servers import Server

#: Server id of its first reader; it takes two more.
_SERVER_ID = 0x7FFC_0000
#: It has to come to the end: changes want all rows.
_SECONDS = 1800.0
_SUMS = (
    "SELECT CONCAT_WS(',', COUNT(*), SUM(id), SUM(quantity), SUM(price), COUNT(note), "
    "TO_CHAR(MAX(updated) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')) FROM peer.items"
)


class ReplicaPeer:
    """The peer between two servers.

    Args:
        source: what is read.
        target: a PostgreSQL with Tailrace's replica, `replica.items`.
        servers_cpu: CPU seconds of the servers so far, by role.
    """

    def __init__(self, source: Server, target: Any, servers_cpu: Callable[[], dict[str, float]]) -> None:
        self._source = source
        self._target = target
        self._servers_cpu = servers_cpu
        self._why_not: str | None = None

    def snapshot(self, ours: Figure, rows: int, wanted: tuple[str, ...]) -> Figure:
        """The table as a whole.

        Args:
            ours: Tailrace's figure of the same.
            rows: rows of the table.
            wanted: count and sums of the source's table.
        """
        self._target.execute(
            "CREATE SCHEMA peer", "CREATE TABLE peer.items (LIKE replica.items INCLUDING ALL)"
        )
        return self._figure(ours, rows, wanted, {"progress": "SELECT COUNT(*) FROM peer.items"})

    def changes(self, ours: Figure, changes: int, wanted: tuple[str, ...], place: Place) -> Figure:
        """The log from a place on; a fifth of the changes are inserts, the last of each transaction.

        Args:
            ours: Tailrace's figure of the same.
            changes: how many.
            wanted: count and sums of the source's table.
            place: where the log stood at the snapshot.
        """
        top = self._target.execute("SELECT MAX(id) FROM peer.items")[0][0]
        progress = f"SELECT 5 * COUNT(*) FROM peer.items WHERE id > {top or 0}"
        start = {"file": place.file, "position": str(place.offset)}
        return self._figure(ours, changes, wanted, {"progress": progress, **start})

    def _figure(self, ours: Figure, events: int, wanted: tuple[str, ...], more: dict[str, str]) -> Figure:
        peer = f"{FLINK_REPLICA.name} {FLINK_REPLICA.version}"
        if self._why_not is None:
            self._calm()
            before = self._servers_cpu()
            try:
                run = watch.run(FLINK_REPLICA, self._task(events, wanted, more), _SECONDS)
            except (UnavailableError, watch.PeerFailedError) as error:
                self._why_not = str(error)
            else:
                used = {role: seconds - before[role] for role, seconds in self._servers_cpu().items()}
                self._calm()
                if not run.complete:
                    self._why_not = f"came to {run.events} of {events} in {_SECONDS:.0f} s"
                return _speed(ours, peer, run, used)
        return Figure(ours.section, f"{peer}: did not run", 0.0, "rows/s", notes={"why": self._why_not})

    def _task(self, events: int, wanted: tuple[str, ...], more: dict[str, str]) -> dict[str, str]:
        host, port = self._target.host, self._target.port
        return {
            "host": self._source.host,
            "port": str(self._source.port),
            "user": self._source.user,
            "password": self._source.password,
            "database": data.DATABASE,
            "table": "items",
            "serverId": str(_SERVER_ID),
            "targetUrl": f"jdbc:postgresql://{host}:{port}/postgres?reWriteBatchedInserts=true",
            "targetUser": self._target.user,
            "targetPassword": self._target.password,
            "targetTable": "peer.items",
            "expected": str(events),
            "sums": _SUMS,
            "wanted": ",".join(wanted),
            **more,
        }

    def _calm(self) -> None:
        """Leave the target's server nothing to do in the background."""
        self._target.execute("VACUUM ANALYZE replica.items", "VACUUM ANALYZE peer.items", "CHECKPOINT")


def _speed(ours: Figure, peer: str, run: PeerRun, servers: dict[str, float]) -> Figure:
    share = "" if run.complete else f", first {run.events:,}"
    return Figure(
        ours.section,
        f"{peer}{share} (Tailrace ÷ it)",
        run.best_rate,
        "rows/s",
        (min(run.rate, run.warm_rate), run.best_rate),
        ours.value / run.best_rate,
        cpu_s={"peer": run.cpu_s, **servers},
        peak_rss_mb={"peer": run.peak_rss_mb},
        notes={
            "Flink": FLINK_VERSION,
            "rows/s, first to last": run.rate,
            "rows/s, later half": run.warm_rate,
            "rows/s by the clock, with the start of the process": run.events / run.wall_s,
            "CPU s per million": run.cpu_s_per_million,
        },
    )
