"""Subscriptions whose checkpoints and targets are in object stores: what servers do beside running them.

Two stores are at different addresses, and the server knows neither by itself: each
subscription is reached with the settings of its own file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
import pytest
import yaml

from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.tokens import Scope
from tests.support import control
from tests.support.control_servers import ControlServer, Shop, named, wait_for_batch
from tests.support.databases import fresh_database
from tests.support.pages import token_of
from tests.support.s3 import KEY, SECRET, ObjectStore, object_store
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, ObjectStore]]:
    with object_store() as one, object_store() as two:
        yield {"one": one, "two": two}


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database("sqlite", request, tmp_path) as found:
        yield found


@dataclass
class Lake:
    """A subscription, called as its store, with all of it in the store.

    Args:
        name: of both.
        store: the store.
        shop: the source.
    """

    name: str
    store: ObjectStore
    shop: Shop

    def __post_init__(self) -> None:
        self.root = f"s3://lake/{uuid.uuid4().hex[:8]}"

    @property
    def table(self) -> str:
        return f"{self.shop.name}.orders"

    @property
    def spec(self) -> str:
        document = yaml.safe_load(self.shop.spec(self.name))
        document["sink"]["path"] = f"{self.root}/tables"
        document["pipeline"] |= {"checkpoint": f"{self.root}/checkpoint", "spark": self.store.settings}
        # has the check start Spark; `orders` is not transformed, so that it can be verified
        document["transform"] = [{"source-table": r".*\.elsewhere", "filter": "id <> 0"}]
        return str(yaml.safe_dump(document))

    def rows(self) -> polars.DataFrame:
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.store.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-central-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        }
        return polars.read_delta(f"{self.root}/tables/{self.table}", storage_options=options)

    def difference(self) -> set[tuple[int, int]]:
        truth = {tuple(row) for row in self.shop.server.execute(f"SELECT id, n FROM {self.table}")}
        held = self.rows()
        return truth ^ set(zip(held["id"], held["n"], strict=True))


def test_server_reaches_each_subscription_in_its_own_store(
    mysql, stores: dict[str, ObjectStore], database: ControlDatabase, tmp_path: Path
) -> None:
    env = {"TEST_PASSWORD": mysql.password, **stores["one"].environment}
    more = ("--allow-path", "s3://lake", "--allow-env", "STORE_*")
    with fresh_database(mysql) as schema:
        shop = Shop(mysql, schema, tmp_path)
        lakes = [Lake(name, store, shop) for name, store in stores.items()]
        server = ControlServer("s1", database, tmp_path, env, more=more)
        try:
            client = Client(server.url(), token_of(database, Scope.ADMIN), tmp_path)
            tailrace = client.run
            for lake in lakes:
                (tmp_path / f"{lake.name}.yaml").write_text(lake.spec)
            files = [f"--file={tmp_path / lake.name}.yaml" for lake in lakes]
            plan = json.loads(tailrace("apply", *files, "--dry-run", "--json"))
            assert [one["action"] for one in plan] == ["create", "create"]
            for lake, one in zip(lakes, plan, strict=True):
                (checked,) = one["checked"]
                assert checked["in_order"], checked
                found = {finding["check"]: finding["found"] for finding in checked["findings"]}
                assert found[f"checkpoint {lake.root}/checkpoint"] == "can be written", found
            for lake in lakes:  # the check has left nothing there
                listed = lake.store.files().get_file_info(selector(lake.root))
                assert not [info.path for info in listed if info.is_file]
            tailrace("apply", *files, "--yes")
            for lake in lakes:
                wait_for_batch(database, lake.name, timeout_s=300)
                wait_until(lambda lake=lake: not lake.difference(), 300)
            for lake in lakes:
                whole_life(client, lake, database)
        finally:
            server.close()
    assert not list(tmp_path.rglob("s3:*"))
    assert not (Path.cwd() / "s3:").exists()


def whole_life(server: Client, lake: Lake, database: ControlDatabase) -> None:
    """Everything that is asked of one subscription."""
    name, table, tailrace, api = lake.name, lake.table, server.run, server

    def state() -> str:
        (status,) = api.get(f"{name}/status").values()
        (found,) = status["tables"]
        return str(found["state"])

    (status,) = api.get(f"{name}/status").values()
    assert [one["name"] for one in status["tables"]] == [table]
    api.get(f"{name}/sample")

    def is_sampled() -> bool:
        lake.shop.server.execute(f"UPDATE {table} SET n = n + 1 WHERE id = 3")
        return [one["table"] for one in api.get(f"{name}/sample")] == [table]

    wait_until(is_sampled, 120)
    wait_until(lambda: not lake.difference(), 300)
    # both subscriptions read the table, and neither sees this
    lake.shop.server.execute("SET sql_log_bin = 0", f"UPDATE {table} SET n = n + 77 WHERE id = 7")
    job = json.loads(tailrace("verify", name, "--json", code=1))
    assert (job["state"], job["result"]["differences"]) == ("done", 1), json.dumps(job)
    job = json.loads(tailrace("repair", name, "--json"))
    assert (job["state"], job["result"]["differences"]) == ("done", 0), json.dumps(job)
    wait_until(lambda: not lake.difference(), 300)
    tailrace("park", name, table)
    wait_until(lambda: state() == "parked", 300)
    lake.shop.server.execute(f"UPDATE {table} SET n = n + 1 WHERE id < 50")
    tailrace("resume", name, table)
    wait_until(lambda: state() != "parked", 300)
    tailrace("resync", name, table)
    wait_until(lambda: not lake.difference(), 300)
    history = json.loads(tailrace("offsets", "history", name, "--json"))
    assert len(history) > 1
    assert json.loads(tailrace("offsets", "diff", name, "--json"))
    tailrace("pause", name)
    wait_until(lambda: named(database, name).owner is None, 60)
    end = tailrace("offsets", "show", name)
    lake.shop.server.execute(f"UPDATE {table} SET n = n + 1 WHERE id > 450")
    done = json.loads(tailrace("offsets", "set", name, end, "--dry-run", "--json"))
    assert done["kept"] is None
    done = json.loads(tailrace("offsets", "set", name, end, "--json"))
    assert done["kept"] is not None
    tailrace("resume", name)
    wait_until(lambda: not lake.difference(), 300)


@dataclass
class Client:
    """A user of the server.

    Args:
        url: the server's.
        token: may do everything.
        directory: where commands run.
    """

    url: str
    token: str
    directory: Path

    def run(self, *arguments: str, code: int = 0) -> str:
        """What a command prints."""
        env = {**os.environ, "TAILRACE_SERVER": self.url, "TAILRACE_TOKEN": self.token}
        command = [sys.executable, "-m", "tailrace", *arguments]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, cwd=self.directory, check=False
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def get(self, path: str) -> Any:
        """What the API says of a subscription."""
        url, headers = f"{self.url}/api/v1/subscriptions/{path}", {"authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return json.load(answer)


def selector(root: str) -> Any:
    from pyarrow import fs

    return fs.FileSelector(root.removeprefix("s3://"), recursive=True, allow_not_found=True)
