"""Named crash points: the places where dying must not matter, and where a test makes the process die.

    failpoint("snapshot.batch")      costs one dictionary look-up when nothing is armed

Armed by the environment variable TAILRACE_FAILPOINT, `NAME=VICTIM@FILE`: the process that reaches NAME kills
VICTIM with SIGKILL, once over all processes and restarts: whoever creates FILE first does it. VICTIM is
`self`, or `jvm`: in a task and in the source process the nearest Java process above, which takes them with
it; in the driver the one that it has started, and the driver goes on without it. A number is a process's id:
of a server, which is killed while the one that reaches NAME goes on. With `raise` nobody is killed and
InjectedError is raised.
Points, in the order in which a batch passes them:

    offset.planned     source process: the batch's end is chosen, Spark has not logged it
    batch.planned      source process: the end is logged, its splits are made
    snapshot.batch     task: rows of a snapshot split were handed to Spark, more may follow
    log.batch          task: changes of a log split were handed to Spark, more may follow
    sink.produced      task of a sink with transactions: its share is sent, its transaction is open
    sink.task          task of a sink: its share of a table is written or committed, others' may not be
    sink.table         driver: one table of the batch is committed, others may not be
    sink.merged        driver: changes that waited are merged into a table, the note of them is still there
    sink.committed     driver: the sink has the whole batch, Spark's commit log does not
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
        "sink.table",
        "sink.merged",
        "sink.committed",
    }
)
VARIABLE = "TAILRACE_FAILPOINT"


class InjectedError(Exception):
    """A failure that a test asked for."""


def failpoint(name: str) -> None:
    """Die here, kill the JVM above or raise InjectedError, if a test has armed `name`."""
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    point, _, rest = armed.partition("=")
    victim, _, token = rest.partition("@")
    if point not in POINTS or not (victim in ("self", "jvm", "raise") or victim.isdecimal()) or not token:
        raise ConfigError(f"{VARIABLE} is wrong", f"found `{armed}`, needed NAME=self|jvm|PID|raise@FILE")
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
    java = _java_above()
    if java is None:
        os.kill(_java_below(), signal.SIGKILL)
        return
    os.kill(java, signal.SIGKILL)
    signal.pause()  # until it has taken this process with it


def _java_above() -> int | None:
    """The nearest Java process above this one."""
    pid = os.getppid()
    while pid > 1 and not _is_java(pid):
        pid = _parent(pid)
    return pid if pid > 1 else None


def _java_below() -> int:
    """The Java process that this one has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                pid = int(entry.name)
                if _parent(pid) == os.getpid() and _is_java(pid):
                    return pid
    raise ConfigError(f"{VARIABLE}: no Java process above or below this one")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def _is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "java"
