"""What a pipeline's settings mean for its Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config.load import load_pipeline
from tailrace.pipeline.session import begin_session_of


@pytest.mark.parametrize(
    ("sink", "trigger", "one"),
    [
        ("{type: delta, path: /lake}", "available-now", True),
        ("{type: kafka, bootstrap-servers: b, topic-prefix: t}", "available-now", True),
        ("{type: delta, path: /lake}", "continuous", False),
        ("{type: delta, path: /lake, mode: scd2}", "available-now", True),
        ("{type: delta, path: 's3a://bucket/lake'}", "available-now", False),
        ("{type: parquet, path: /lake}", "available-now", False),
    ],
)
def test_jvm_that_soon_ends_and_has_no_rows_has_one_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, trigger: str, one: bool
) -> None:
    monkeypatch.setattr("tailrace.spark.launch.is_running", lambda: True)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "source: {type: mysql, hostname: h, username: u, password: p, tables: 'a.b'}\n"
        f"sink: {sink}\npipeline: {{trigger: {trigger}, checkpoint: /checkpoint, master: 'local[1]'}}\n"
    )
    for shared in (False, True):
        starting = begin_session_of(load_pipeline(file), "test", None, shared=shared)
        options = starting._conf["spark.driver.defaultJavaOptions"].split()
        assert ("-XX:TieredStopAtLevel=1" in options) is (one and not shared)
        assert any(option.startswith("-XX:Tier4") for option in options) is (shared or not one)
