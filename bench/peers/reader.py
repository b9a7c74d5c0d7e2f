"""mysql-replication, counting: run by the Python of its own virtual environment, it imports nothing of ours.

The task comes on standard input as Task.java describes, the lines printed are those of Counter.java.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from pymysqlreplication import BinLogStreamReader  # type: ignore[import-not-found]
from pymysqlreplication.row_event import (  # type: ignore[import-not-found]
    DeleteRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

_PERIOD_S = 0.25


def main() -> None:
    """Count until the expected number of row events is there, then wait to be ended."""
    task = dict(line.rstrip("\n").split("=", 1) for line in iter(sys.stdin.readline, "\n"))
    watch = threading.Thread(target=_await_end, daemon=True)
    watch.start()
    expected = int(task["expected"])
    stream = BinLogStreamReader(
        connection_settings={
            "host": task["host"],
            "port": int(task["port"]),
            "user": task["user"],
            "passwd": task["password"],
        },
        server_id=int(task["serverId"]),
        log_file=task["file"],
        log_pos=int(task["position"]),
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[task["database"]],
    )
    events, first, printed = 0, 0.0, 0.0
    for event in stream:
        # decoding is lazy: `rows` does it
        events += len(event.rows)
        now = time.perf_counter()
        first = first or now
        if events >= expected or now - printed >= _PERIOD_S:
            printed = now
            line = {"events": events, "seconds": now - first, "done": events >= expected}
            print(json.dumps(line), flush=True)
        if events >= expected:
            break
    watch.join()


def _await_end() -> None:
    """Whoever started this process is gone when the input ends."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
