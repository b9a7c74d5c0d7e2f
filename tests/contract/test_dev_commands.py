"""`tailrace dev`: start, list and stop from separate processes; the same for every product."""

from __future__ import annotations

import json
import re
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.cache import cache_dir
from tailrace.errors import TailraceError
from tailrace_dev.servers import (
    DevServer,
    start_kafka,
    start_mariadb,
    start_mysql,
    start_nats,
    start_opensearch,
    start_postgres,
    start_rabbitmq,
    start_redis,
    start_registry,
    start_rocketmq,
)
from tailrace_dev.servers.commands import dev

_START = {
    "mysql": start_mysql,
    "mariadb": start_mariadb,
    "postgres": start_postgres,
    "kafka": start_kafka,
    "registry": start_registry,
    "opensearch": start_opensearch,
    "rocketmq": start_rocketmq,
    "redis": start_redis,
    "nats": start_nats,
    "rabbitmq": start_rabbitmq,
}
#: These take long to start four times.
_SLOW = ("rocketmq", "rabbitmq")


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(dev, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


#: Each is started three times.
_STARTS_SLOWLY = ("kafka", "registry", "opensearch", "rabbitmq", "rocketmq")


def _files_elsewhere(server: DevServer) -> set[str]:
    """The temporary files that a server's processes have in memory, outside its directory; only on Linux."""
    found = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            session = (process / "stat").read_text().rpartition(")")[2].split()[3]
            if int(session) == server.state.pid:
                lines = (process / "maps").read_text().splitlines()
                found |= {line.split(maxsplit=5)[-1] for line in lines}
    return {
        file
        for file in found
        if Path(file).is_relative_to(tempfile.gettempdir())
        and not Path(file).is_relative_to(server.private)
        and not file.endswith(" (deleted)")
    }


@pytest.mark.parametrize(
    "product",
    [pytest.param(name, marks=[pytest.mark.slow] if name in _STARTS_SLOWLY else []) for name in _START],
)
def test_server_survives_sigkill_and_leaves_nothing(product: str) -> None:
    with _START[product]() as server:
        assert isinstance(server, DevServer)
        assert not _files_elsewhere(server)
        port, data = server.port, server.data
        server.kill()
        server.start()
        server.restart()
        assert (server.port, server.running) == (port, True)
    assert not data.exists()
    assert not server.directory.exists()


def test_started_server_is_listed_and_stopped_by_name() -> None:
    name = re.match(r"(mysql-\d+): mysql 9", _run("start", "mysql", "--option", "server-id=9"))
    assert name
    try:
        (line,) = [li for li in _run("list").splitlines() if li.startswith(name[1] + " ")]
        assert "  running  " in line
    finally:
        assert f"{name[1]}: stopped" in _run("stop", name[1])
    assert name[1] not in _run("list")


def test_stop_all_leaves_servers_of_processes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = cache_dir("debian")
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    (tmp_path / "debian").symlink_to(packages)
    with start_mysql() as server:
        _run("start", "mysql")
        assert len(_run("list").splitlines()) == 2
        _run("stop", "--all")
        assert server.running
        assert _run("list").startswith(server.name)


def test_stop_of_an_unknown_name_is_an_error_that_lists_the_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    with pytest.raises(TailraceError, match=r"no server `x`(?s:.*)known are: none"):
        _run("stop", "x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stop"], "give either a NAME"),
        (["stop", "x", "--all"], "give either a NAME"),
        (["start", "mysql", "--option", "novalue"], "expected NAME=VALUE"),
        (["start", "oracle"], "'oracle' is not one of 'mysql', 'mariadb', 'postgres'"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(dev, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_unavailable_version_is_refused_with_what_was_found() -> None:
    with pytest.raises(TailraceError, match=r"no MySQL server 3\.23 is available") as caught:
        start_mysql("3.23")
    assert caught.value.detail
    assert caught.value.hint


def test_opensearch_takes_settings_and_keeps_documents_after_sigkill() -> None:
    with start_opensearch(options={"node.attr.room": "b"}) as server:

        def ask(path: str, document: dict[str, int] | None = None) -> dict[str, object]:
            request = urllib.request.Request(
                f"{server.url}/{path}",
                None if document is None else json.dumps(document).encode(),
                {"Content-Type": "application/json"},
                method="GET" if document is None else "PUT",
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: dict[str, object] = json.load(answer)
                return found

        (node,) = ask("_nodes/settings?flat_settings")["nodes"].values()  # type: ignore[attr-defined]
        assert node["settings"]["node.attr.room"] == "b"
        ask("i/_doc/1?wait_for_active_shards=1", {"a": 7})
        server.kill()
        server.start()
        ask("_cluster/health/i?wait_for_status=yellow&timeout=50s")
        assert ask("i/_doc/1")["_source"] == {"a": 7}


def test_opensearch_refuses_a_port_that_its_runner_cannot_take() -> None:
    with pytest.raises(TailraceError, match=r"cannot listen on port 9299(?s:.*)1025 to 9298"):
        start_opensearch(port=9299)
