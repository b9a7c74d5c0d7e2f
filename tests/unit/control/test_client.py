"""Commands as clients of a server, which listens on a port of this machine."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from tailrace.cli import cli
from tailrace.control import jobs, tokens
from tailrace.control.api.app import create_app
from tailrace.control.client import commands, job_commands
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.operations import Control
from tailrace.control.places import log_file
from tailrace.control.policy import Policy
from tailrace.control.streams import MOST_LOG
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError, ControlError, TailraceError, TransientControlError
from tailrace.pipeline.job_answers import TableAnswer
from tailrace.pipeline.log_output import RotatedFile
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.unit.control.test_offsets import add_batch
from tests.unit.control.test_operations import SPEC


@dataclass
class Served:
    control: Control
    url: str
    files: Path

    def file(self, name: str, spec: str = SPEC) -> Path:
        """Write a pipeline file whose target has the same name."""
        self.files.mkdir(exist_ok=True)
        path = self.files / f"{name}.yaml"
        path.write_text(spec.replace("lake", name))
        return path


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    data = tmp_path / "data"
    database = ControlDatabase(f"sqlite:///{data}/tailrace.db")
    database.prepare()
    control = Control(database, data, Policy(hosts=["127.0.0.1"]))
    with database.begin() as connection:
        _, token = tokens.create(connection, "test", "ann", Scope.ADMIN)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(create_app(control), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    monkeypatch.setenv("TAILRACE_SERVER", url)
    monkeypatch.setenv("TAILRACE_TOKEN", token)
    yield Served(control, url, tmp_path / "files")
    server.should_exit = True
    thread.join()
    listening.close()
    database.close()


def invoke(*arguments: str | Path, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=answer, catch_exceptions=True)


def run(*arguments: str | Path, answer: str | None = None) -> str:
    done = invoke(*arguments, answer=answer)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def refused(kind: type[TailraceError], *arguments: str | Path) -> TailraceError:
    found = invoke(*arguments).exception
    assert isinstance(found, kind), found
    return found


def test_apply_creates_changes_and_keeps(served: Served) -> None:
    served.file("a")
    served.file("b")
    first = run("apply", "-f", served.files, "--yes")
    assert "create a" in first
    assert "done: 2 changed, 0 kept" in first
    served.file("b", SPEC.replace("orders", "items"))
    plan = run("apply", "-f", served.files, "--yes")
    assert "keep a" in plan
    assert "change b" in plan
    assert "-  tables: shop\\.orders" in plan
    assert "+  tables: shop\\.items" in plan
    assert served.control.get("b").version == 2
    again = json.loads(run("apply", "-f", served.files, "--json"))
    assert again == [{"name": "a", "action": "keep"}, {"name": "b", "action": "keep"}]


def test_apply_asks_first(served: Served) -> None:
    file = served.file("a")
    assert invoke("apply", "-f", file, answer="n\n").exit_code != 0
    with pytest.raises(ControlError):
        served.control.get("a")
    run("apply", "-f", file, answer="y\n")
    assert served.control.get("a").spec == file.read_text()


def test_apply_neither_sends_nor_shows_secrets(served: Served) -> None:
    file = served.file("a", SPEC.replace("${env:TAILRACE_SECRET_SHOP}", "geheim7"))
    done = invoke("apply", "-f", file, "--yes")
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "TR-8418"
    assert "geheim7" not in done.output + str(done.exception)


def test_a_change_made_meanwhile_is_not_lost(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    file = served.file("a")
    run("apply", "-f", file, "--yes")
    file.write_text(file.read_text() + "# mine\n")

    def confirm(*_: Any, **__: Any) -> bool:
        served.control.change("bob", "a", file.read_text() + "# bob's\n")
        return True

    monkeypatch.setattr("click.confirm", confirm)
    assert refused(ControlError, "apply", "-f", file).code == "TR-8414"
    assert served.control.get("a").spec.endswith("# bob's\n")


def test_subscriptions_are_listed_described_and_exported(served: Served, tmp_path: Path) -> None:
    run("apply", "-f", served.file("a"), "--yes")
    assert [line.split()[:3] for line in run("get").splitlines()] == [
        ["NAME", "STAGE", "DESIRED"],
        ["a", "register", "run"],
    ]
    assert json.loads(run("get", "--json"))[0]["name"] == "a"
    assert json.loads(run("get", "a", "--json"))["stage"] == "register"
    assert "subscription.create  by ann" in run("describe", "a")
    assert json.loads(run("describe", "a", "--json"))["tables"] == []
    assert run("export", "a") == served.control.get("a").spec
    run("export", "--to", tmp_path / "out")
    assert json.loads(run("apply", "-f", tmp_path / "out", "--json"))[0]["action"] == "keep"


def test_subscriptions_are_paused_resumed_and_deleted(served: Served) -> None:
    run("apply", "-f", served.file("a"), "--yes")
    assert "a: pause" in run("pause", "a")
    assert "a: run" in run("resume", "a")
    assert refused(ControlError, "retry", "a").code == "TR-8407"
    assert "a: cancel, stage cancelled" in run("cancel", "a", "--yes")
    assert invoke("delete", "a", answer="n\n").exit_code != 0
    run("delete", "a", "--yes")
    assert refused(ControlError, "get", "a").code == "TR-8412"


def test_tables_are_asked_for_by_name_of_the_subscription(served: Served) -> None:
    run("apply", "-f", served.file("a"), "--yes")
    assert "will be parked" in run("park", "a", "shop.orders")
    assert "will be read again" in run("resync", "a", "shop.orders", "--where", "id > 3")
    assert "will be resumed" in run("resume", "a", "shop.orders")
    checkpoint = served.control.data_dir / "a/_tailrace/checkpoint"
    pending = RequestDirectory(requests_path(str(checkpoint))).pending()
    assert [request.kind for request in pending] == ["park", "signal", "resume"]
    assert refused(ConfigError, "park", "a", "shop.other").code == "TR-1302"
    assert refused(ConfigError, "resume", "a", "--sink", "delta").code == "TR-7613"


def _finish(served: Served, differences: int = 0, **error: str) -> threading.Thread:
    """Let the next job end as soon as it is there, as its server would."""

    def end() -> None:
        found: list[jobs.TableJob] = []
        deadline = time.monotonic() + 20
        while not found and time.monotonic() < deadline:
            found = served.control.database.read(
                lambda c: jobs.select_jobs(c, "a", state=jobs.JobState.QUEUED, most=1)
            )
        table = asdict(TableAnswer("delta", "shop.orders", "t", differences=differences, found=9))
        result = {"error": error or None, "tables": [{"source": "", **table}]}
        state = jobs.JobState.FAILED if error else jobs.JobState.DONE
        with served.control.database.begin() as connection:
            jobs.end(connection, "s", found[0], state, result)

    ending = threading.Thread(target=end)
    ending.start()
    return ending


def test_subscription_is_verified_and_repaired_by_name(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_commands, "_LOOK_S", 0.05)
    run("apply", "-f", served.file("a"), "--yes")
    ending = _finish(served)
    told = run("verify", "a")
    ending.join()
    assert "job 1: verify, done, 1 of 1 compared" in told
    assert "shop.orders in delta: equal, 9 before the repair" in told
    ending = _finish(served, 1234)
    done = invoke("repair", "a", "shop.orders")
    ending.join()
    assert done.exit_code == 1
    assert "1,234 rows differ" in done.output
    ending = _finish(served, message="no", code="TR-8486")
    done = invoke("verify", "a", "--json")
    ending.join()
    assert (done.exit_code, json.loads(done.output)["state"]) == (1, "failed")
    assert run("repair", "a", "--no-wait", "--key", "k") == "job 4: queued\n"
    assert json.loads(run("repair", "a", "--no-wait", "--key", "k", "--json"))["id"] == 4
    assert [row.split()[:3] for row in run("job", "list", "a").splitlines()] == [
        ["JOB", "KIND", "STATE"],
        ["4", "repair", "queued"],
        ["3", "verify", "failed"],
        ["2", "repair", "done"],
        ["1", "verify", "done"],
    ]
    assert [one["id"] for one in json.loads(run("job", "list", "a", "--state", "done", "--json"))] == [2, 1]
    assert "job 4: cancelled" in run("job", "cancel", "a", "4")
    assert json.loads(run("job", "show", "a", "4", "--json"))["state"] == "cancelled"
    assert "no [TR-8486]" in run("job", "show", "a", "3")
    assert refused(ControlError, "job", "show", "a", "9").code == "TR-8480"
    assert refused(ConfigError, "verify", "a", "--table", "x.*").code == "TR-8101"
    assert refused(ConfigError, "verify", "a", "--table", "(").code == "TR-8101"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["verify", "a", "--limit", "3"], "--limit"),
        (["verify", "a", "--show-values"], "--show-values"),
        (["verify", "a", "--sample", "1%"], "--sample"),
        (["verify", "a", "--key-range", "1..2"], "--key-range"),
        (["verify", "a", "--resume"], "--resume"),
        (["repair", "a", "--dry-run"], "--dry-run"),
        (["verify", "a.yaml", "--no-wait"], "--no-wait"),
        (["repair", "a.yaml", "--key", "k"], "--key"),
    ],
)
def test_options_that_would_be_ignored_are_refused(served: Served, arguments: list[str], option: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert f"{option} is not for" in done.output


def test_offsets_are_shown_and_set_by_name(served: Served, tmp_path: Path) -> None:
    served.control.create("ann", "shop", SPEC, paused=True)
    assert "no batch yet" in run("offsets", "show", "shop")
    end = add_batch(served.control, 0, 500)
    assert '"pos": 500' in run("offsets", "show", "shop")
    assert "batch 0" in run("offsets", "history", "shop")
    file = tmp_path / "offset.json"
    file.write_text(json.dumps({**end, "log": {**end["log"], "pos": 900}}))
    dry = run("offsets", "set", "shop", f"@{file}", "--unchecked", "--dry-run")
    assert "shop.orders will be read again" in dry
    assert "offsets.before" not in dry
    assert "kept in offsets.before/0.0" in run("offsets", "set", "shop", f"@{file}", "--unchecked")
    assert '"pos": 900' in run("offsets", "show", "shop")
    told = json.loads(run("offsets", "set", "shop", f"@{file}", "--unchecked", "--json"))
    assert (told["kept"], told["end"]["log"]["pos"]) == ("offsets.before/0.1", 900)
    assert json.loads(run("offsets", "diff", "shop", "0", "0", "--json"))[1:] == ["  nothing"]
    run("resume", "shop")
    assert refused(ControlError, "offsets", "set", "shop", f"@{file}", "--unchecked").code == "TR-8487"
    assert refused(ConfigError, "offsets", "set", "shop", "{", "--unchecked").code == "TR-1301"
    assert refused(ConfigError, "offsets", "diff", "shop", "0", "7").code == "TR-1303"


def test_a_file_stays_a_file(served: Served, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refused(ConfigError, "park", missing, "shop.orders").code == "TR-1001"
    file = served.file("a", SPEC.replace("lake", str(tmp_path / "lake")))
    assert "will be parked" in run("park", file, "shop.orders")


def test_logs_are_printed(served: Served) -> None:
    run("apply", "-f", served.file("a"), "--yes")
    assert run("logs", "a") == ""
    path = log_file("a", served.control.data_dir)
    path.parent.mkdir(parents=True)
    path.write_text("one\n\x1b[31mtwo\n")
    assert run("logs", "a") == "one\n\\x1b[31mtwo\n"


def test_log_that_grows_and_is_emptied_is_followed(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("apply", "-f", served.file("a"), "--yes")
    path = log_file("a", served.control.data_dir)
    path.parent.mkdir(parents=True)
    path.write_text("first\nhalf")
    rotated = RotatedFile(path, 1)

    def append(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    steps = iter(
        [
            lambda: append(" a line\n"),
            lambda: append("x" * MOST_LOG + "\nafter a long one\n"),
            lambda: None,
            lambda: (append("before the end\n"), rotated.rotate(), append("after it\n")),
            lambda: append("last\n"),
        ]
    )

    def sleep(_: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(commands, "_pause", sleep)
    done = invoke("logs", "-f", "a")
    lines = [line for line in done.stdout.replace("x" * MOST_LOG, "xx").splitlines() if line != "Aborted!"]
    wanted = ["first", "half a line", "xx", "after a long one", "before the end", "after it", "last"]
    assert lines == wanted


def test_every_answer_may_be_json(served: Served, tmp_path: Path) -> None:
    run("apply", "-f", served.file("a"), "--yes")

    def told(*arguments: str | Path) -> Any:
        done = invoke(*arguments, "--json")
        assert done.exit_code == 0, (done.output, done.exception)
        return json.loads(done.stdout)

    for command in ("park", "resync", "resume"):
        found = told(command, "a", "shop.orders")
        assert found["tables"] == ["shop.orders"]
        assert found["request"]
    file = served.file("b", SPEC.replace("lake", str(tmp_path / "lake")))
    for command in ("park", "resync", "resume"):
        assert told(command, file, "shop.orders")["tables"] == ["shop.orders"]
    assert told("pause", "a")["desired"] == "pause"
    assert told("resume", "a")["desired"] == "run"
    assert told("export")[0]["spec"] == served.control.get("a").spec
    assert told("export", "--to", tmp_path / "out") == [{"name": "a", "path": str(tmp_path / "out/a.yaml")}]
    assert told("cancel", "a", "--yes")["stage"] == "cancelled"
    assert told("delete", "a", "--yes") == {"name": "a", "deleted": True}
    assert told("token", "create", "ci", "--scope", "read")["name"] == "ci"
    assert told("token", "revoke", "ci") == {"name": "ci", "revoked": True}


def test_names_are_completed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop-a", "shop-b", "other"):
        served.control.create("ann", name, SPEC.replace("lake", name))

    def completed(typed: str) -> list[str]:
        words = typed.split(" ")
        complete = ShellComplete(cli, {}, "tailrace", "_TAILRACE_COMPLETE")
        return [item.value for item in complete.get_completions(words[:-1], words[-1])]

    for command in ("get", "describe", "pause", "logs -f", "delete", "export other", "job list", "verify"):
        assert completed(f"{command} sh") == ["shop-a", "shop-b"], command
    assert completed("offsets set shop-b") == ["shop-b"]
    assert completed("park pipe") == ["pipe"], "a file"
    assert completed("token revoke sh") == []
    assert completed("pau") == ["pause"]
    monkeypatch.setenv("TAILRACE_SERVER", "http://127.0.0.1:1")
    assert completed("get sh") == []
    monkeypatch.delenv("TAILRACE_SERVER")
    assert completed(f"get --server {served.url} sh") == ["shop-a", "shop-b"]


def test_tokens_are_made_and_revoked(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(run("token", "create", "ci", "--scope", "read", "--days", "1"))
    run("get", "--token-file", file)
    assert refused(ControlError, "pause", "a", "--token-file", file).code == "TR-8438"
    assert [line.split()[0] for line in run("token", "list").splitlines()] == ["NAME", "ann", "ci"]
    run("token", "revoke", "ci")
    assert refused(ControlError, "get", "--token-file", file).code == "TR-8437"


def test_servers_and_tokens_that_are_wrong_are_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    nobody = f"http://127.0.0.1:{port}"
    assert refused(TransientControlError, "get", "--server", nobody).code == "TR-8443"
    assert refused(TailraceError, "get", "--server", f"{served.url}/elsewhere").code in ("TR-8440", "TR-8443")
    for url in ("", "ftp://host", "http://user:geheim7@host", "host:80"):
        monkeypatch.setenv("TAILRACE_SERVER", url)
        error = refused(ConfigError, "get")
        assert error.code == "TR-8442"
        assert "geheim7" not in str(error)
    monkeypatch.setenv("TAILRACE_SERVER", served.url)
    for text in ("", "geheim7", "tr_a\r\nx: y"):
        monkeypatch.setenv("TAILRACE_TOKEN", text)
        error = refused(ConfigError, "get")
        assert error.code == "TR-8442"
        assert "geheim7" not in str(error)
    assert refused(ConfigError, "get", "--token-file", tmp_path / "none").code == "TR-8442"
