"""The lines of the report that put peers beside Tailrace.

Ratios are Tailrace's rate over the peer's: its `cells` over a peer that hands over records, its messages in
JSON over Debezium's; tasks of a sink get the former and make the latter. CPU seconds are, of a peer, those
between its first event and its last, of Tailrace all of the query's, with its start. The server's count on
neither side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bench import data
from bench.peers import peers, watch
from bench.peers.peers import Peer
from bench.peers.toolkit import UnavailableError
from bench.peers.watch import PeerRun
from bench.report import Figure
from bench.servers import Server
from bench.works import Made

#: Server id of the first reader a peer starts; Flink's takes two more.
_SERVER_ID = 0x7FFE_0000


def beside(
    server: Server,
    made: Made,
    ours: Mapping[str, Figure],
    seconds: float,
    server_cpu: Callable[[], float],
) -> Iterator[Figure]:
    """Run the peers on a work.

    Args:
        server: what is read.
        made: what of it.
        ours: Tailrace's figures of the same work by shape, `cells` and `debezium`.
        seconds: longest run of a peer, since its first event.
        server_cpu: CPU seconds of the server so far.
    """
    for peer in peers.PEERS:
        if not _reads(peer, made):
            continue
        before = server_cpu()
        try:
            run = watch.run(peer, _task(server, made), seconds)
        except (UnavailableError, watch.PeerFailedError) as error:
            name = f"{peer.name} {peer.version}: did not run"
            yield Figure(made.section, name, 0.0, "rows/s", notes={"why": str(error)})
            continue
        shape = "debezium" if peer is peers.DEBEZIUM_JSON else "cells"
        yield _speed(made, peer, run, ours[shape], server_cpu() - before)
        if peer is peers.DEBEZIUM:
            yield _cpu(made, peer, run, ours["cells"])


def _reads(peer: Peer, made: Made) -> bool:
    """Whether the peer can do the work."""
    return peer.snapshots or made.part is not None


def _task(server: Server, made: Made) -> dict[str, str]:
    return task_of(server, made.work.tables, made.events, made.part)


def task_of(server: Server, tables: str, events: int, part: data.LogPart | None) -> dict[str, str]:
    """The settings of a peer for one run.

    Args:
        server: what is read.
        tables: which of the benchmark's, as a regular expression.
        events: how many rows or row events there are.
        part: the stretch of the log, None: the tables' rows.
    """
    task = {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": server.password,
        "database": data.DATABASE,
        "tables": rf"{data.DATABASE}\.{tables}",
        "serverId": str(_SERVER_ID),
        "expected": str(events),
    }
    if part is not None:
        task |= {"file": part.file, "position": str(part.start), "gtids": part.gtids}
    return task


def _speed(made: Made, peer: Peer, run: PeerRun, ours: Figure, server_cpu_s: float) -> Figure:
    ratio = ours.value / run.best_rate
    share = "" if run.complete else f", first {run.events / made.events:.0%}"
    return Figure(
        made.section,
        f"{peer.name} {peer.version}{share} ({ours.system} ÷ it)",
        run.best_rate,
        "rows/s",
        (min(run.rate, run.warm_rate), run.best_rate),
        ratio,
        cpu_s={"peer": run.cpu_s, "mysqld": server_cpu_s},
        peak_rss_mb={"peer": run.peak_rss_mb},
        notes={
            "events": run.events,
            "rows/s, first to last event": run.rate,
            "rows/s, later half": run.warm_rate,
            "rows/s by the clock, with the start of the process": run.events / run.wall_s,
            "CPU s per million": run.cpu_s_per_million,
        },
        system=peer.name,
    )


def _cpu(made: Made, peer: Peer, run: PeerRun, ours: Figure) -> Figure:
    used = sum(seconds for role, seconds in ours.cpu_s.items() if role != "mysqld")
    per_million = 1e6 * used / made.events
    ratio = per_million / run.cpu_s_per_million
    return Figure(
        made.section,
        f"CPU of Tailrace cells (of {peer.name}'s)",
        per_million,
        "s/million",
        ratio=ratio,
    )
