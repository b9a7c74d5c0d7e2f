"""The daemon loads what the stream's source needs, before it forks a worker for each task."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tailrace.spark.daemon import PRELOAD

_LOADED = """
import sys
from tailrace.spark.daemon import preload
preload()
print(*(m for m in sys.modules if m.startswith("tailrace.")))
"""
_MYSQL, _POSTGRES = "tailrace.sources.mysql.session", "tailrace.sources.postgres.session"


@pytest.mark.parametrize(
    ("source", "wanted", "other"),
    [
        (None, _MYSQL, _POSTGRES),
        ("mysql", _MYSQL, _POSTGRES),
        ("mariadb", _MYSQL, _POSTGRES),
        ("postgresql", _POSTGRES, _MYSQL),
    ],
)
def test_daemon_loads_the_decoders_of_the_source(source: str | None, wanted: str, other: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != PRELOAD}
    if source is not None:
        environment[PRELOAD] = source
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], env=environment, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert wanted in loaded
    assert "tailrace.sinks.tables.rows" in loaded
    assert other not in loaded


def test_database_that_is_not_known_is_left_to_the_task() -> None:
    subprocess.run(
        [sys.executable, "-c", _LOADED],
        env={**os.environ, PRELOAD: "oracle"},
        capture_output=True,
        check=True,
    )
