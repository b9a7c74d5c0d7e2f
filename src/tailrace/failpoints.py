"""Named crash points: steps of a batch at which a crash must do no harm, and at which a test can cause one.

    failpoint("snapshot.batch")      costs one dictionary look-up when no failpoint is armed

The environment variable TAILRACE_FAILPOINT, `NAME=VICTIM@FILE`, arms a failpoint. The process that reaches
NAME kills VICTIM with SIGKILL. This happens once across all processes and restarts: the first process to
create FILE does it. VICTIM is one of:

    self      the process that reaches NAME
    jvm       in the driver: the Java process that it started, without which the driver goes on; in a task
              and in the source process: that of their driver, or the one above; they end with it
    a number  the process with this id, e.g. a server; the process that reaches NAME goes on
    raise     no process: InjectedError is raised

Failpoints, in the order in which a batch reaches them:

    offset.planned     source process: the batch's end is chosen, Spark has not logged it
    batch.planned      source process: the end is logged, its splits are planned
    snapshot.batch     task: rows of a snapshot split were passed to Spark, more may follow
    log.batch          task: changes of a log split were passed to Spark, more may follow
    sink.produced      task of a transactional sink: its messages are sent, its transaction is open
    sink.task          task of a sink: its rows of a table are written or committed, other tasks' may not be
    sink.files         driver: the first rows of a new Delta table are in its directory, it is not made yet
    sink.altered       driver: a Delta target has renamed or dropped columns, the rows of the batch are not
                       written, and the table of its pending changes still has its former columns
    sink.nested        driver: rows are written that are nested in documents of other targets, these are not
    sink.table         driver: one table of the batch is committed, others may not be
    sink.merged        driver: pending changes are merged into a table, their record still exists
    sink.seen          driver: the keys of a table that is read again are noted, other rows are not deleted
    sink.text          driver: a column of a target has become text, no row of the batch is written
    sink.rekeyed       driver: a replica's table has another key, its ledger still the old one
    sink.reread        driver: the rows that such a table no longer has are deleted, the noted keys are not
    park.requested     driver: a table is to be parked, its stream has not begun anew
    park.sink          driver: a sink is parked, its stream has not begun anew
    resume.sink        driver: a sink is no longer parked, it has not been given a batch
    sink.committed     driver: the sink has committed the whole batch, Spark's commit log has not
    verify.begun       driver: a table is being compared beside the stream
    verify.found       driver: differences were found, their rows are not to be read again yet
    verify.requested   driver: differing rows are to be read again
    archive.segment    archiver: a segment is written, no manifest names it
    archive.committed  archiver: a manifest names it
    archive.expired    archiver: no manifest names the oldest segments, their files are there
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tailrace.errors import ConfigError

POINTS = frozenset(
    {
        "offset.planned",
        "batch.planned",
        "snapshot.batch",
        "log.batch",
        "sink.produced",
        "sink.task",
        "sink.files",
        "sink.altered",
        "sink.nested",
        "sink.table",
        "sink.merged",
        "sink.seen",
        "sink.text",
        "sink.rekeyed",
        "sink.reread",
        "park.requested",
        "park.sink",
        "resume.sink",
        "sink.committed",
        "verify.begun",
        "verify.found",
        "verify.requested",
        "archive.segment",
        "archive.committed",
        "archive.expired",
    }
)
VARIABLE = "TAILRACE_FAILPOINT"


class InjectedError(Exception):
    """A failure that a test requested."""


def failpoint(name: str) -> None:
    """Kill a process or raise InjectedError if a test has armed `name`.

    Raises:
        ConfigError: the environment variable is malformed.
        InjectedError: the armed victim is `raise`.
    """
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    point, _, rest = armed.partition("=")
    victim, _, token = rest.partition("@")
    if point not in POINTS or not (victim in ("self", "jvm", "raise") or victim.isdecimal()) or not token:
        raise ConfigError(
            f"{VARIABLE} is wrong", f"found `{armed}`, needed NAME=self|jvm|PID|raise@FILE", code="TR-1211"
        )
    if point != name:
        return
    try:
        Path(token).touch(exist_ok=False)
    except FileExistsError:
        return
    if victim == "raise":
        raise InjectedError(name)
    if victim == "self":
        os.kill(os.getpid(), signal.SIGKILL)
    if victim.isdecimal():
        os.kill(int(victim), signal.SIGKILL)
        return
    above = os.getpid()
    while (java := above if _is_java(above) else _java_below(above)) is None:
        above = _parent(above)
        if above <= 1:
            raise ConfigError(f"{VARIABLE}: no Java process above or below this one", code="TR-1211")
    os.kill(java, signal.SIGKILL)
    if above != os.getpid():
        signal.pause()  # its death ends this process, too


def _java_below(above: int) -> int | None:
    """The id of the Java process that this process has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has exited meanwhile
                pid = int(entry.name)
                if _parent(pid) == above and _is_java(pid):
                    return pid
    return None


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def _is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "java"
