"""Commands that change a checkpoint: what they refuse, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace.cli import cli
from tailrace.errors import ConfigError
from tailrace.extras import EXTRAS
from tailrace.model.signal import Signal
from tailrace.pipeline.run_state import RunNotes
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.requests import RequestDirectory, requests_path

LOG = {"file": "binlog.000003", "pos": 500, "gtids": "", "server": "s", "epoch": 0, "ts_ms": 5}


def offset(*, pos: int = 500, **given: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "mode": "initial",
        "log": {**LOG, "pos": pos},
        "tables": {},
        "done": {"shop.t": 2},
        **given,
    }


@pytest.fixture
def pipeline(tmp_path: Path) -> Any:
    """Writes a pipeline file with a checkpoint of one batch."""

    def write(sink: str) -> Path:
        checkpoint = tmp_path / "checkpoint"
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        end = json.dumps({**offset(), "shape": "cells"})
        (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{end}")
        (checkpoint / "commits" / "0").write_text("v1\n{}")
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            "source: {type: mysql, hostname: h, username: u, password: p, tables: 'shop.*'}\n"
            f"sink: {sink}\npipeline: {{checkpoint: {checkpoint}}}\n"
        )
        return file

    return write


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def end_of(file: Path) -> dict[str, Any]:
    last = Checkpoint(str(file.parent / "checkpoint")).last()
    assert last is not None
    return last.end


def test_table_set_back_to_its_begin_is_read_again_instead(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    back = offset(tables={"shop.t": {"c": None, "n": 0, "e": 2}}, done={})
    assert "shop.t will be read again" in run("offsets", "set", "--unchecked", file, json.dumps(back))
    end = end_of(file)
    assert end["tables"] == {}
    assert "shop.t" in end["done"]
    assert end["again"]["shop.t"]["c"] is None
    assert end["shape"] == "cells"


@pytest.mark.parametrize(
    "sink",
    [
        "type: delta, mode: changelog, path: {}",
        "type: json, path: {}",
        "type: clickhouse, mode: changelog, url: 'http://h'",
    ],
)
def test_log_is_not_set_back_for_a_sink_that_appends(pipeline: Any, tmp_path: Path, sink: str) -> None:
    file = pipeline(f"{{{sink.format(tmp_path / 'lake')}}}")
    before = end_of(file)
    with pytest.raises(ConfigError, match="for a second time"):
        run("offsets", "set", "--unchecked", file, json.dumps(offset(pos=400)))
    assert end_of(file) == before


def test_log_may_be_set_back_for_a_sink_that_holds_rows(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    run("offsets", "set", "--unchecked", file, json.dumps(offset(pos=400)))
    assert end_of(file)["log"]["pos"] == 400


def test_columns_are_found_out_anew_at_another_position(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    given = offset(shapes={"shop.t": {"is": [1, 7, 1, [1], [[1, "id", 23, -1, 0]]]}})
    run("offsets", "set", "--unchecked", file, json.dumps(given))
    assert end_of(file)["shapes"] == given["shapes"]
    given["log"] = offset(pos=400)["log"]
    run("offsets", "set", "--unchecked", file, json.dumps(given))
    assert "shapes" not in end_of(file)


def test_resync_leaves_a_request_for_the_stream(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    run("resync", file, "shop.t", "shop.u")
    (request,) = RequestDirectory(requests_path(str(tmp_path / "checkpoint"))).pending()
    assert request.tables == ("shop.t", "shop.u")
    with pytest.raises(ConfigError, match=r"`other\.t` cannot be read again"):
        run("resync", file, "other.t")


def test_resync_of_some_rows_sends_a_signal_which_is_answered(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    assert "rows of shop.t, shop.u" in run("resync", file, "shop.t", "shop.u", "--where", "id > 7")
    (request,) = RequestDirectory(requests_path(str(tmp_path / "checkpoint"))).pending()
    assert request.signal is not None
    assert request.signal.type == "resync"
    assert request.signal.data["additional-conditions"] == [
        {"data-collection": "shop\\.t", "filter": "id > 7"},
        {"data-collection": "shop\\.u", "filter": "id > 7"},
    ]


def test_signal_leaves_itself_for_the_stream(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    data = '{"data-collections": ["shop[.]t"]}'
    assert "ad-hoc" in run("signal", file, "execute-snapshot", "--data", data, "--id", "ad-hoc")
    run("signal", file, "pause-snapshot")
    first, second = RequestDirectory(requests_path(str(tmp_path / "checkpoint"))).pending()
    assert first.signal == Signal("ad-hoc", "execute-snapshot", {"data-collections": ["shop[.]t"]})
    assert second.signal == Signal(second.id, "pause-snapshot")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("make-coffee",), "type of the signal is unknown"),
        (("log", "--data", "{"), "not JSON"),
        (("log", "--data", "[]"), "not a JSON object"),
    ],
)
def test_signal_that_is_wrong_is_not_sent(
    pipeline: Any, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    with pytest.raises(ConfigError, match=problem):
        run("signal", file, *arguments)
    assert RequestDirectory(requests_path(str(tmp_path / "checkpoint"))).pending() == []


def add_batch(file: Path, number: int, end: dict[str, Any], *, committed: bool = True) -> None:
    checkpoint = file.parent / "checkpoint"
    planned = json.dumps({"batchTimestampMs": 1_700_000_000_000 + number})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{planned}\n{json.dumps(end)}")
    if committed:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def several_batches(file: Path) -> None:
    unfinished = {"shop.u": {"c": [7], "n": 70, "e": 900}}
    again = {"shop.t": {"id": "a", "c": [1], "n": 1, "e": 2, "done": False}}
    event = {"table": "shop.t", "changes": [{"kind": "drop.column", "name": "x"}]}
    add_batch(file, 1, offset(pos=1500, tables=unfinished))
    add_batch(
        file,
        2,
        offset(
            pos=1500, v=2, done={"shop.t": 2, "shop.u": 900}, again=again, schema=[event], requests=["id1"]
        ),
        committed=False,
    )


def test_history_says_in_words_what_each_batch_has_read(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    several_batches(file)
    lines = run("offsets", "history", file).splitlines()
    assert lines == [
        "batch 0, 1970-01-01 00:00:00 UTC, committed",
        "  log: starts at binlog.000003:500",
        "  shop.t: snapshot done, 2 rows",
        "batch 1, 2023-11-14 22:13:20 UTC, committed",
        "  log: 1,000 bytes, up to binlog.000003:1500",
        "  shop.u: snapshot, 70 of ~900 rows",
        "batch 2, 2023-11-14 22:13:20 UTC, planned: the next start repeats it",
        "  shop.u: snapshot done, 900 rows",
        "  shop.t: read again, 1 of ~2 rows",
        "  schema of shop.t: drop.column",
        "  request id1 accepted",
    ]
    assert run("offsets", "history", file, "--last", "1").splitlines() == lines[6:]


def test_history_shows_what_was_set_by_hand(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    run("offsets", "set", "--unchecked", file, json.dumps(offset(pos=400)))
    assert run("offsets", "history", file).splitlines()[-2:] == [
        "  `offsets set` then changed its end:",
        "  log: -100 bytes, up to binlog.000003:400",
    ]


def test_difference_between_two_batches(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path}/lake}}")
    several_batches(file)
    assert "  request id1 accepted" in run("offsets", "diff", file).splitlines()
    both = run("offsets", "diff", file, "0", "2").splitlines()
    assert both[1:3] == [
        "  log: 1,000 bytes, up to binlog.000003:1500",
        "  shop.u: snapshot done, 900 rows",
    ]
    assert run("offsets", "diff", file, "1", "1").splitlines()[1:] == ["  nothing"]
    with pytest.raises(ConfigError, match="does not hold batch 9"):
        run("offsets", "diff", file, "0", "9")


def test_status_names_what_is_known_without_source_and_targets(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: parquet, path: {tmp_path / 'lake'}}}")
    text = run("status", file)
    assert "pipeline pipeline: not running" in text
    assert "batch 0, committed" in text
    assert "source does not answer" in text
    assert "shop.t: streaming" in text
    found = json.loads(run("status", file, "--json"))
    assert found["running"] is False
    assert found["source"]["answers"] is False
    assert [table["name"] for table in found["tables"]] == ["shop.t"]


def test_changed_offset_forgets_up_to_which_time_the_last_run_was_complete(
    pipeline: Any, tmp_path: Path
) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path / 'lake'}}}")
    checkpoint = str(tmp_path / "checkpoint")
    with RunNotes(checkpoint) as notes:
        notes.on_progress({"sources": [{"latestOffset": {"v": 1, "complete_us": 17}}]})
    assert json.loads(run("status", file, "--json"))["complete_up_to"] is not None
    run("offsets", "set", "--unchecked", file, json.dumps(offset(pos=400)))
    assert json.loads(run("status", file, "--json"))["complete_up_to"] is None


def test_offset_of_a_running_pipeline_is_not_set(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: delta, path: {tmp_path / 'lake'}}}")
    with RunNotes(str(tmp_path / "checkpoint")) as notes:
        notes.on_progress({"sources": [{"latestOffset": {"v": 1, "complete_us": 17}}]})
        with pytest.raises(ConfigError, match="the pipeline is running") as raised:
            run("offsets", "set", "--unchecked", file, json.dumps(offset(pos=400)))
    assert raised.value.code == "TR-1312"
    assert end_of(file)["log"]["pos"] == 500


def test_later_offset_has_tables_read_again(pipeline: Any, tmp_path: Path) -> None:
    file = pipeline(f"{{type: json, path: {tmp_path}/lake}}")
    later = json.dumps(offset(pos=900))
    assert "shop.t will be read again" not in run(
        "offsets", "set", "--unchecked", "--dry-run", "--skip-changes", file, later
    )
    assert "shop.t will be read again" in run("offsets", "set", "--unchecked", file, later)
    assert end_of(file)["again"]["shop.t"]["done"] is False


def test_commands_without_their_packages_are_not_listed_and_name_their_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(EXTRAS, "server", ("package_that_is_not_there",))
    listed = CliRunner().invoke(cli, ["--help"])
    assert listed.exit_code == 0, listed.output
    assert "\n  run " in listed.output
    assert "\n  apply " in listed.output
    assert "\n  serve " not in listed.output
    refused = CliRunner().invoke(cli, ["serve"])
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.hint == "pip install 'tailrace[server]'"
