"""A running pipeline as seen by other users of the machine: sockets, processes, files; and its remains."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import stat
import threading
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tailrace_dev.servers.server import free_port, wait_until
from tests.support.databases import fresh_database
from tests.support.pipelines import FIRST_REPORT_S, PipelineProcess
from tests.support.processes import command_line, listening, with_children

PASSWORD = "geheim-der-quelle"
KEY = "geheim-des-speichers"
SETTING = "spark.hadoop.fs.s3a.secret.key"
#: Its name does not say that it is a secret.
PLAIN = "spark.hadoop.warehouse.account"


@dataclass
class Seen:
    """The observations."""

    commands: list[str] = field(default_factory=list)
    addresses: set[tuple[str, int]] = field(default_factory=set)
    modes: dict[str, int] = field(default_factory=dict)
    temporary: list[str] = field(default_factory=list)
    #: Text of the UI's pages, the event log and the log files.
    told: dict[str, str] = field(default_factory=dict)
    code: int | None = None
    left: list[str] = field(default_factory=list)


def modes_below(root: Path) -> dict[str, int]:
    """The mode of each file and directory, by its path below `root`."""
    found = {}
    for path in [root, *root.rglob("*")]:
        if path.exists():
            found[str(path.relative_to(root.parent))] = stat.S_IMODE(path.stat().st_mode)
    return found


@pytest.fixture(scope="module")
def seen(mysql, tmp_path_factory) -> Seen:
    """A pipeline into JSON with the UI and an event log, observed while it runs and after it has stopped."""
    directory = tmp_path_factory.mktemp("seen")
    temporary, events = directory / "tmp", directory / "events"
    temporary.mkdir()
    events.mkdir()
    found, port = Seen(), free_port()
    with fresh_database(mysql) as database:
        user = f"u_{database}"
        mysql.execute(f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'")
        # other tests may have used XA on the server: a user must then be able to see such transactions
        rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"
        mysql.execute(f"GRANT {rights} ON *.* TO {user}")
        mysql.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        mysql.execute(f"INSERT INTO {database}.t VALUES (1)")
        spark = {
            SETTING: "${env:STORE_KEY}",
            PLAIN: "name:${env:STORE_KEY}",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(port),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
        }
        run = PipelineProcess(
            directory,
            mysql,
            rf"{database}\.t",
            sink={"type": "json", "path": str(directory / "tables")},
            pipeline={"trigger": "continuous", "spark": spark},
            env={"TMPDIR": str(temporary), "STORE_KEY": KEY},
            username=user,
            password=PASSWORD,
        )
        thread = threading.Thread(target=lambda: setattr(found, "code", run.run()))
        thread.start()
        try:
            wait_until(lambda: run.reports() > 0 or not thread.is_alive(), FIRST_REPORT_S)
            assert run.pid is not None
            assert thread.is_alive(), run.output()
            look(found, run.pid, directory, port)
            os.kill(run.pid, signal.SIGTERM)
            thread.join(FIRST_REPORT_S)
        finally:
            run.kill()
            thread.join()
            mysql.execute(f"DROP USER {user}")
        found.left = [p.name for p in temporary.iterdir()]
        logs = [*events.rglob("*"), *directory.rglob("*.log"), directory / "output.txt"]
        found.told |= {p.name: p.read_text(errors="replace") for p in logs if p.is_file()}
    return found


def look(found: Seen, pid: int, directory: Path, port: int) -> None:
    """Observe the running pipeline, whose UI is at `port`."""
    pids = with_children(pid)
    found.commands = [command_line(one) for one in pids]
    found.addresses = listening(pids)
    found.modes = modes_below(directory / "tables")
    found.temporary = [p.name for p in (directory / "tmp").iterdir()]
    found.modes |= modes_below(directory / "tmp")
    found.told["jobs"] = fetched(f"http://127.0.0.1:{port}/jobs/")
    applications = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = json.loads(fetched(applications))
    found.told["ui"] = fetched(f"{applications}/{application['id']}/environment")


def fetched(url: str) -> str:
    """The page at `url`."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_all_of_a_local_pipeline_listens_on_loopback(seen):
    # Py4J's gateway and callbacks, Spark's driver and block manager, the UI that was turned on
    assert len(seen.addresses) >= 5
    assert [a for a in seen.addresses if not ipaddress.ip_address(a[0]).is_loopback] == []


def test_spark_demands_its_secret_of_who_connects(seen):
    assert ["spark.authenticate", "true"] in json.loads(seen.told["ui"])["sparkProperties"]


def test_no_command_line_shows_a_secret_or_a_setting(seen):
    assert any("SparkSubmit" in command for command in seen.commands)
    said = "\n".join(seen.commands)
    assert KEY not in said
    assert PASSWORD not in said
    assert SETTING not in said


def test_neither_ui_nor_event_log_nor_logs_show_a_secret(seen):
    assert SETTING in seen.told["ui"]
    assert {"ui", "tailrace.log", "output.txt"} <= seen.told.keys()
    assert any(name.startswith("events_") for name in seen.told)
    assert [name for name, text in seen.told.items() if KEY in text or PASSWORD in text] == []


def test_checkpoint_and_log_are_for_their_owner_alone(seen):
    notes = {path: mode for path, mode in seen.modes.items() if path.startswith("tables/_tailrace")}
    assert "tables/_tailrace/checkpoint/offsets/0" in notes
    assert "tables/_tailrace/tailrace.log" in notes
    assert {path: oct(mode) for path, mode in notes.items() if mode & 0o077} == {}


def test_lake_is_for_whom_the_umask_allows(seen):
    mask = os.umask(0o022)
    os.umask(mask)
    lake = {
        path: mode
        for path, mode in seen.modes.items()
        if path.startswith("tables") and "/_tailrace" not in path
    }
    assert any(path.endswith(".json") for path in lake)
    wrong = {path: oct(mode) for path, mode in lake.items() if mode | mask not in (0o777, 0o666 | mask)}
    assert wrong == {}


def test_temporary_files_lie_in_one_private_directory_without_the_settings(seen):
    (name,) = [name for name in seen.temporary if name.startswith("tailrace-spark-")]
    assert seen.modes[f"tmp/{name}"] == 0o700
    assert f"tmp/{name}/spark.properties" not in seen.modes
    assert [other for other in seen.temporary if "spark" in other and other != name] == []


def test_stopped_pipeline_ends_well_and_leaves_no_temporary_file(seen):
    assert (seen.code, seen.left) == (0, [])
