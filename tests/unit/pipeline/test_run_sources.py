"""How a source of several ends; the whole is tested with servers (`tests/e2e/test_sources.py`)."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from tailrace.config.load import parse_pipelines
from tailrace.pipeline import run_sources
from tailrace.pipeline.run_sources import SourceRun

_FILE = """
sources:
  - {{name: east, url: 'mysql://east', user: reader, password: '', tables: .*}}
  - {{name: west, url: 'mysql://west', user: reader, password: '', tables: .*}}
sink: {{type: delta, path: {0}/lake}}
route: [{{source-table: .*, sink-table: '{{source}}_all', shard-column: _shard}}]
pipeline: {{checkpoint: {0}/checkpoint}}
"""


def test_an_unexpected_error_of_one_source_is_shown_at_once_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("hunter2")

    monkeypatch.setattr(run_sources, "captured_tables", fail)
    watcher = Mock()
    pipeline = parse_pipelines(_FILE.format(tmp_path))[0]
    run = SourceRun(pipeline, Mock(), watcher)
    run.run(Mock(), threading.Event())
    assert isinstance(run.error, ValueError)
    ((shown,),) = [call.args for call in watcher.on_notice.call_args_list]
    assert shown.startswith("source `east` has ended, the others go on: a ValueError")
    assert "hunter2" not in shown
