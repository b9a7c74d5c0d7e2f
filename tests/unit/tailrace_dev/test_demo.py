"""The demo's pieces that need neither server nor Spark."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.config.load import load_pipeline
from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.errors import TailraceError
from tailrace_dev.demo.directory import DemoDirectory
from tailrace_dev.demo.processes import Process, descendants
from tailrace_dev.demo.products import PRODUCTS, shop
from tailrace_dev.demo.screen import Screen
from tailrace_dev.demo.shop import Sizes
from tailrace_dev.demo.stream import StreamFiles
from tests.support.wait import wait_until


@pytest.mark.parametrize("rows", [10_000, 123_456, 1_000_000])
def test_shop_has_at_least_the_rows_asked_for(rows: int) -> None:
    assert rows <= sum(Sizes.of(rows).rows.values()) <= 1.3 * rows


@pytest.mark.parametrize("product", PRODUCTS)
def test_pipeline_file_is_one_that_tailrace_reads(product: str, tmp_path: Path) -> None:
    place = DemoDirectory(tmp_path / "demo")
    place.prepare()
    password = place.make_password()
    place.write_pipeline(shop(product).source, "127.0.0.1", 3306, 5000)
    pipeline = load_pipeline(place.pipeline)
    assert pipeline.sinks == (DeltaSettings(str(place.tables), WriteMode.UPSERT),)
    assert pipeline.source.password.resolve() == password
    assert pipeline.source.captures("shop.order_lines")
    assert pipeline.source.snapshot_chunk_rows == 5000
    assert Path(pipeline.checkpoint) == place.checkpoint
    assert place.password.stat().st_mode & 0o077 == 0
    compile(place.snippet(), "snippet", "exec")


def test_directory_of_an_earlier_demo_is_emptied_and_no_other(tmp_path: Path) -> None:
    place = DemoDirectory(tmp_path)
    place.prepare()
    (tmp_path / "tables").mkdir()
    place.prepare()
    assert not (tmp_path / "tables").exists()
    place.pipeline.unlink()
    (tmp_path / "mine").touch()
    with pytest.raises(TailraceError, match="not empty"):
        place.prepare()
    assert (tmp_path / "mine").exists()


def test_kill_ends_a_process_and_all_below_it(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    process = Process(["-c", child], tmp_path / "log")
    wait_until(lambda: len(descendants(process.pid)) == 1, 20)
    below = descendants(process.pid)
    assert process.kill() == 2
    assert process.exit_code == -signal.SIGKILL
    wait_until(lambda: not any(_alive(pid) for pid in below), 10)


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_process_that_ended_is_told_with_the_end_of_its_output(tmp_path: Path) -> None:
    process = Process(["-c", "print('why it ended'); raise SystemExit(3)"], tmp_path / "log")
    wait_until(lambda: process.exit_code is not None, 20)
    with pytest.raises(TailraceError, match="the thing ended with exit code 3") as caught:
        process.require_running("the thing")
    assert "why it ended" in str(caught.value)


def test_stream_is_read_from_checkpoint_and_delta_logs(tmp_path: Path) -> None:
    checkpoint, tables = tmp_path / "checkpoint", tmp_path / "tables"
    files = StreamFiles(checkpoint, tables)
    assert files.committed() is None
    assert files.running_batch() is None
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    for batch in (0, 1):
        log = {"file": "b.1", "pos": batch, "ts_ms": 1000}
        end = {"v": 1, "mode": "initial", "log": log, "tables": {}, "done": {"shop.orders": 7}}
        (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n" + json.dumps(end))
    (checkpoint / "commits" / "0").touch()
    running = files.running_batch()
    assert running is not None
    assert running[0] == 1
    assert files.committed() is not None
    delta = tables / "shop.orders" / "_delta_log"
    delta.mkdir(parents=True)
    add = {"add": {"path": "a.parquet", "stats": json.dumps({"numRecords": 7})}}
    for version, part, metrics in ((0, "snapshot", {}), (1, "log", {"numOutputRows": "3"})):
        said = json.dumps({"batch": 0, "part": part})
        line = {"commitInfo": {"userMetadata": said, "operationMetrics": metrics}}
        (delta / f"{version:020}.json").write_text(f"{json.dumps(line)}\n{json.dumps(add)}\n")
    batches = tables / "_tailrace_batches" / "_delta_log"
    batches.mkdir(parents=True)
    (batches / f"{1:020}.json").write_text(json.dumps({"commitInfo": {"userMetadata": '{"batch": 0}'}}))
    assert files.snapshot_rate(set())[1] == 7
    assert files.written().changes.total() == 3
    assert len(files.lags_ms(0)) == 1


def test_step_that_fails_does_not_claim_to_be_done() -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, width=100))
    with pytest.raises(KeyError), screen.step("doing it"):
        raise KeyError
    with screen.step("doing it") as step:
        step.text = "it is done"
    lines = file.getvalue().splitlines()
    assert lines[0].endswith("not finished: doing it")
    assert lines[1].endswith("it is done")
