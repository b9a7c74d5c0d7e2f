"""All figures in one run on one server: `python -m bench` (`make bench`); `--smoke` for a quick look.

starts     `tailrace run` until its first row, and with nothing to do
small-tables  100 tables of one row each into Delta
snapshot   SELECT of a table drained raw, against Spark's noop sink in shapes cells and row
bulk       the binary log drained raw, against the same: 1000-row transactions
single     the same with single-row transactions
wide       the same with a table of 200 columns
nulls      the same with rows that are mostly NULL
many       the same with 20 tables in every transaction
peers      Debezium, Flink CDC, mysql-binlog-connector-java, mysql-replication beside Tailrace on all of these
latency    commit to foreachBatch at two rates
scale      cost of a row and memory as a table grows
topics     the log into Kafka, exactly once; Debezium with a producer
verification  a Delta table compared with its source
lakes      a change log appended to Delta and Iceberg, a burst brought into a large Delta table
memory     peak resident sets with a large table and a huge transaction
replicas   snapshot of half the table, and changes, into MySQL, MariaDB and PostgreSQL, which run beside the
           source; Flink CDC with Flink's JDBC connector beside the one into PostgreSQL

Only if they are named, as they take too long for a whole run:

many-tables  start and a batch of pipelines with 1,000 and 10,000 tables
batches    time and CPU of an empty and of a small batch into 1, 20 and 200 Delta tables
visible    from commit to visible in 20 Delta tables of mode upsert
clusters   a snapshot by clusters of 1, 2 and 4 workers
tpch       TPC-H's tables at scale 1 and 5 from PostgreSQL into Iceberg
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import plot, report
from bench.report import Figure
from bench.run import LONG_SECTIONS, SECTIONS, Bench
from bench.servers import running
from bench.targets import judged
from bench.works import WORKS


def main() -> int:
    """Parse, run, write; 1 when a memory limit was passed."""
    given = _arguments()
    facts = report.machine()
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-bench-") as scratch,
        running(given.url, given.port) as server,
    ):
        begun = time.monotonic()
        bench = Bench(server, given, Path(scratch))
        bench.run()
        minutes = (time.monotonic() - begun) / 60
    parts = {section: round(took_s / 60, 1) for section, took_s in bench.took_s.items()}
    print(f"{minutes:.1f} minutes:", *(f"{section} {part}" for section, part in parts.items()))
    if not given.smoke and set(given.only) == set(SECTIONS):
        whole = Figure("whole run", "make bench", minutes, "minutes", notes={"minutes": parts})
        bench.figures.append(judged(whole))
        earlier = report.others(bench.figures)
        titles = ", ".join(dict.fromkeys(figure.section for figure in earlier))
        facts |= {"rows": given.rows, "repetitions": given.repeat, "of an earlier run": titles}
        report.keep()
        _write([*bench.figures, *earlier], facts)
    elif given.update:
        figures, facts = report.replaced(bench.figures)
        again = sorted({*str(facts.get("run again", "")).split(), *given.only})
        _write(figures, {**facts, "run again": " ".join(again)})
    return 1 if any(figure.met is False for figure in bench.figures if figure.section == "memory") else 0


def _write(figures: list[Figure], facts: dict[str, Any]) -> None:
    report.write(figures, facts)
    plot.write(figures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    size = 1 if "--smoke" in sys.argv else 0
    for work in WORKS:
        parser.add_argument(
            f"--{work.key}", type=int, default=work.events[size], help=f"{work.title} ({work.events[0]:,})"
        )
    sizes = (
        ("rows", int, (5_000_000, 50_000), "of the table that is compared, copied and changed"),
        ("megabytes", int, (500, 10), "log bytes of the huge transaction"),
        ("seconds", float, (30, 5), "of writing, for latency"),
        ("peer-seconds", float, (12, 4), "longest run of a peer on a work, from its first event on"),
        ("repeat", int, (1, 1), "repetitions, of which the median counts"),
    )
    for name, kind, defaults, text in sizes:
        parser.add_argument(f"--{name}", type=kind, default=defaults[size], help=f"{text} ({defaults[0]})")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*SECTIONS, *LONG_SECTIONS),
        default=SECTIONS,
        help="sections to run; `peers` alone runs on all works, else on those named beside it; "
        "results are written when all sections ran",
    )
    parser.add_argument(
        "--update", action="store_true", help="replace these sections in the results of the last whole run"
    )
    parser.add_argument(
        "--url", help="mysql://user:password@host:port of a server to use instead of a new one"
    )
    parser.add_argument("--port", type=int, help="of the new server (a free one)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
