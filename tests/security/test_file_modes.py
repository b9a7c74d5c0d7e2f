"""Access to written files: our own only for their owner, the lake as the umask allows."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import ConfigError
from tailrace.pipeline.run import make_directories
from tailrace.private import open_private
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.launch import new_home
from tailrace.spark.log_records import PrivateFileHandler
from tailrace_dev.servers.server import wait_until

END = '{"v": 1}'


def pipeline(sink: str, more: str = "") -> Pipeline:
    source = "source: {url: 'mysql://x', user: u, tables: 'shop.*'}"
    return parse_pipeline(f"{source}\nsink: {sink}\npipeline: {{name: p{more}}}\n")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("sink", ["delta", "parquet", "json"])
def test_lake_is_open_and_notes_below_it_are_closed(tmp_path: Path, sink: str) -> None:
    made = pipeline(f"{{type: {sink}, path: '{tmp_path}/new/lake'}}")
    make_directories(made)
    lake = tmp_path / "new" / "lake"
    notes = [lake / "_tailrace", lake / "_tailrace" / "checkpoint"]
    assert [mode(p) for p in (lake.parent, lake)] == [0o755, 0o755]
    assert [mode(p) for p in notes] == [0o700, 0o700]


def test_notes_of_an_older_version_are_closed(tmp_path: Path) -> None:
    made = pipeline(f"{{type: delta, path: '{tmp_path}'}}")
    offsets = Path(made.checkpoint) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(END)
    (offsets / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    make_directories(made)
    assert [mode(p) for p in (offsets.parents[1], offsets.parent, offsets)] == [0o700] * 3
    assert mode(offsets / "0") == 0o600
    assert mode(tmp_path / "elsewhere") == 0o644


def test_catalog_beside_iceberg_tables_stays_open_to_their_readers(tmp_path: Path) -> None:
    made = pipeline(f"{{type: iceberg, path: '{tmp_path}/lake'}}")
    make_directories(made)
    assert mode(tmp_path / "lake" / "_tailrace") == 0o755
    assert mode(Path(made.checkpoint)) == 0o700


def test_checkpoint_of_its_own_is_closed_and_what_was_above_it_stays(tmp_path: Path) -> None:
    make_directories(pipeline("{type: console}", f", checkpoint: '{tmp_path}/shared/own/checkpoint'"))
    assert mode(tmp_path / "shared" / "own" / "checkpoint") == 0o700
    (tmp_path / "open").mkdir()
    make_directories(pipeline("{type: console}", f", checkpoint: '{tmp_path}/open/checkpoint'"))
    assert mode(tmp_path / "open") == 0o755


def test_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file/lake` cannot be created"):
        make_directories(pipeline(f"{{type: delta, path: '{tmp_path}/file/lake'}}"))


def test_offset_that_was_set_by_hand_is_kept_closed(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + END)
    (tmp_path / "commits" / "0").touch()
    kept = Checkpoint(str(tmp_path)).set_end({"v": 1, "x": 2})
    assert mode(tmp_path / kept) == 0o600
    assert mode((tmp_path / kept).parent) == 0o700
    assert mode(tmp_path / "offsets" / "0") == 0o600


def test_log_is_closed_also_one_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / "old.log").touch(mode=0o644)
    for name in ("old.log", "new.log"):
        handler = PrivateFileHandler(tmp_path / name, delay=True)
        handler.emit(logging.makeLogRecord({"msg": "x"}))
        handler.close()
        assert mode(tmp_path / name) == 0o600


def test_device_as_log_keeps_its_mode() -> None:
    before = mode(Path(os.devnull))
    with open(os.devnull, "ab", opener=open_private):
        assert mode(Path(os.devnull)) == before


def test_temporary_files_of_a_killed_process_are_removed_and_those_of_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "tailrace-spark-killed"
    left.mkdir()
    (left / "lock").touch()
    (tmp_path / "tailrace-spark-of-no-lock").mkdir()
    ours = new_home()
    other = subprocess.run(
        [sys.executable, "-c", "from tailrace.spark.launch import new_home; print(new_home())"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ours.exists()
    assert mode(ours) == 0o700
    assert not left.exists()
    new_home()
    assert not Path(other.stdout.strip()).exists()
    assert (tmp_path / "tailrace-spark-of-no-lock").exists()


#: A Spark whose process ends without a word, after it has said what it looks like.
_ENDS_AT_ONCE = """
import json, os, socket, stat, sys
from pathlib import Path
from tailrace.spark import launch
from tailrace.spark.session import spark_session
os.umask(0o027)
here = Path(sys.argv[1])
launch._LOG4J["appender.file.policies.size.size"] = "1KB"
extra = {"spark.hadoop.x": " ä=#\\\\z"}
spark = spark_session("t", parallelism=1, log_file=here / "log" / "log", extra_conf=extra)
gateway = spark.sparkContext._gateway
spark.range(1).write.parquet(str(here / "lake"))
log = gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("test")
for _ in range(4):
    log.warn("x" * 2000)
answers = []
calls = (gateway.java_parameters.port, "t\\ntoString"), (gateway._callback_server.port, "p0\\ncall")
for port, call in calls:
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(f"c\\n{call}\\ne\\n".encode())
        try:
            answers.append(stranger.recv(100).decode())
        except ConnectionError:
            answers.append("")
files = [*(here / "lake").iterdir(), *(here / "log").iterdir()]
modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in files}
value = spark.sparkContext._jsc.hadoopConfiguration().get("x")
print(json.dumps([modes, answers, value]), flush=True)
os._exit(3)
"""


def test_spark_that_is_left_without_its_process_removes_its_files(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", "PYTHONDONTWRITEBYTECODE")}
    run = subprocess.run(
        [sys.executable, "-c", _ENDS_AT_ONCE, str(tmp_path)],
        env={**env, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 3, run.stderr
    modes, answers, value = json.loads(run.stdout.splitlines()[-1])
    assert value == " ä=#\\z"
    assert modes.pop("log") == 0o600
    assert modes.pop("log.1") == 0o600
    assert {m for name, m in modes.items() if not name.startswith("log")} == {0o640}
    assert {m for name, m in modes.items() if name.startswith("log")} <= {0o600}
    assert answers[0].startswith("!xsAuthentication error")
    assert not answers[1].startswith("!y")
    wait_until(lambda: not any(temporary.iterdir()), 60)
