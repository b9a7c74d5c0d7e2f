"""What the figures are to reach, and why those that fall short do; PostgreSQL's are in `bench.postgres`.

A figure is named by how its section's title and its own name begin: both go on with sizes and versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bench.report import Figure, number, show

_ONE_MACHINE = "Source server, Spark's JVM, source process and workers share two cores, and all are busy."
_JVM = (
    "The JVM turns each row of Arrow's columns into one of its own; pre-made batches cost it the same. The"
    " server alone, drained raw by two connections, reaches less than half of that on these cores."
)
_JSON = "Two thirds of the workers' CPU time make JSON; the peer's rate is that of a warm JVM."
_WARM = "The peer is measured warm; Tailrace's rate has the first batch of a query in it."
_FIRST_ROWS = (
    "The peer is measured warm, on the table's first rows; the whole is larger than the server's memory."
)
_WHOLE = "Tailrace's CPU time is that of the whole query, its start included."
#: `cost` and `cores` are those of the figure.
_LOG = "An event costs {cost} CPU µs, the server's with it, and {cores} of the two cores are busy."
_KAFKA = "A third of its CPU time makes JSON, a fifth is librdkafka; the broker shares the two cores."
_MERGE = "Finding the rows of a burst reads the keys of the files that it touches; both cores are busy."
_COMMITS = "A batch commits to 20 tables; half of a commit is processes that Hadoop's file system starts."
_START = "JVM and session take most of it, and the first batch is code that is not compiled yet."
_TABLES = "A Delta table costs a commit, some 0.1 CPU s in a JVM that has not compiled them yet."


@dataclass(frozen=True)
class Target:
    """What a figure is to reach.

    Args:
        section: how the titles of its sections begin.
        name: how its name begins.
        least, most: bounds of the ratio if it has one, else of its value.
        why: why it falls short; may have `{cost}`, CPU µs of an event, and `{cores}`, those that
            were busy.
    """

    section: str
    name: str
    least: float | None = None
    most: float | None = None
    why: str = ""

    def fits(self, figure: Figure) -> bool:
        """Whether it is this figure's."""
        return figure.section.startswith(self.section) and figure.name.startswith(self.name)

    def judge(self, figure: Figure) -> Figure:
        """The figure with the target, and whether it is met."""
        found = figure.value if figure.ratio is None else figure.ratio
        unit = f" {figure.unit}" if figure.ratio is None else ""
        bounds = [f"≥ {number(self.least)}{unit}"] if self.least is not None else []
        bounds += [f"≤ {number(self.most)}{unit}"] if self.most is not None else []
        met = (self.least is None or found >= self.least) and (self.most is None or found <= self.most)
        notes = figure.notes if met else {**figure.notes, "missed because": self._reason(figure)}
        return replace(figure, target=", ".join(bounds), met=met, notes=notes)

    def _reason(self, figure: Figure) -> str:
        events = figure.notes.get("events")
        if not events:
            return self.why
        cpu_s = sum(figure.cpu_s.values()) / events
        return self.why.format(cost=number(1e6 * cpu_s), cores=f"{cpu_s * figure.value:.1f}")


def _of_log(section: str, *, least: float, debezium: float, flink: float | None = None) -> Iterator[Target]:
    yield Target(section, "Tailrace cells to a sink's tasks", least, why=_LOG)
    yield Target(section, "Debezium Embedded 3", debezium, why=_WARM)
    yield Target(section, "Debezium Embedded, JSON", 8, why=_JSON)
    yield Target(section, "CPU of Tailrace cells", most=1 / 8, why=_WHOLE)
    if flink is not None:
        yield Target(section, "Flink CDC", flink, why=_WARM)


TARGETS = (
    Target("whole run", "make bench", most=40),
    Target("starts", "first row", most=6, why=_START),
    Target("starts", "nothing to do", most=6),
    Target("starts", "CPU of nothing to do", most=6),
    Target("start-up", "CPU of JVM and source process, second query", most=0.8, why=_ONE_MACHINE),
    Target("snapshot", "Tailrace cells to noop (of the drain)", 1.0, why=_ONE_MACHINE),
    Target("snapshot", "Tailrace cells to noop (of the drain, 2", 0.65, why=_ONE_MACHINE),
    Target("snapshot", "Tailrace row to noop", 0.6, why=f"{_ONE_MACHINE} {_JVM}"),
    Target("snapshot", "Debezium Embedded 3", 7, why=_FIRST_ROWS),
    Target("snapshot", "Debezium Embedded, JSON", 8, why=_JSON),
    Target("snapshot", "CPU of Tailrace cells", most=1 / 8),
    *_of_log("log, 1000-row transactions", least=1_200_000, debezium=12, flink=8),
    *_of_log("log, single-row transactions", least=300_000, debezium=8, flink=8),
    *_of_log("log, 200 columns", least=125_000, debezium=5),
    *_of_log("log, mostly NULL", least=700_000, debezium=8),
    *_of_log("log, 20 tables", least=700_000, debezium=8),
    Target("latency, 50 ", "commit to foreachBatch, p50", most=500),
    Target("latency, 1000 ", "commit to foreachBatch, p50", most=250, why=_ONE_MACHINE),
    Target("latency, 1000 ", "commit to foreachBatch, p99", most=800, why=_ONE_MACHINE),
    Target("replica, snapshot", "into", 150_000, why="The target server's own work: it takes both cores."),
    Target("replica, changes", "into", 30_000, why="The target server's own work: it takes both cores."),
    Target("lake, change log", "appended to Delta", 400_000, why=_ONE_MACHINE),
    Target("lake, upsert, burst", "until the table is current, merges that adapt", 200_000, why=_MERGE),
    Target("lake, upsert, burst", "until the table is current (of the rate", 0.5, why=_MERGE),
    Target("Delta upsert", "commit to visible, p50", most=1, why=_COMMITS),
    Target("many tables, 10,000", "start", most=60, why=_ONE_MACHINE),
    Target("Kafka", "exactly-once", 250_000, why=_KAFKA),
    Target("Kafka", "own CPU of an event", most=5, why=_KAFKA),
    Target("Kafka", "Debezium", 5, why=_KAFKA),
    Target("small tables, 100", "snapshot", most=12, why=_TABLES),
    Target("small tables, 1,000", "snapshot", most=60, why=_TABLES),
    Target("verification", "alone", 500_000, why=_ONE_MACHINE),
    Target("verification", "beside a running pipeline", 100_000, why=_ONE_MACHINE),
    Target("memory", "source process", most=400),
    Target("memory", "python worker", most=800),
    Target("cost of a row", "memory", most=1.25, why="The JVM's heap grows to its limit."),
)


def show_judged(figures: Iterable[Figure]) -> int:
    """Show each figure as soon as it is known; the exit code: 1 if a target is missed."""
    met = True
    for figure in map(judged, figures):
        show(figure)
        met = met and figure.met is not False
    return 0 if met else 1


def judged(figure: Figure) -> Figure:
    """The figure with its target, if it has one."""
    for target in TARGETS:
        if target.fits(figure):
            return target.judge(figure)
    return figure
