"""Tried as a new user would: the wheel in an empty environment, a server, a pipeline made in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import polars
import pytest

from tests.support.browser import chromium, signed_in
from tests.support.wait import wait_until
from tests.support.wheels import Environment, build

pytestmark = pytest.mark.slow

#: How long it may take from the command `tailrace serve` to rows in the target, seconds.
MOST_S = 120
#: How long the test waits, to tell how long it took.
_PATIENCE_S = 360


def test_pipeline_made_in_a_browser_runs_within_two_minutes(mysql, database: str) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note VARCHAR(20))",
        f"INSERT INTO {database}.orders VALUES (1, 'one'), (2, 'two')",
    )
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tailrace-new-user-") as home, chromium() as browser:
        begun = time.monotonic()
        wheel = build(Path(home) / "dist")[1]
        built = time.monotonic()
        env = Environment.make(Path(home) / "venv", wheel, "server")
        installed = time.monotonic()
        data, log = Path(home) / "data", Path(home) / "serve.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [
                    *(env.tailrace, "serve", "--data-dir", data),
                    *("--listen", "127.0.0.1:0", "--allow-host", mysql.host),
                ],
                env={
                    "PATH": f"{env.path}/bin:{os.environ['PATH']}",
                    "HOME": home,
                    "TAILRACE_SECRET_SHOP": mysql.password,
                    **{name: value for name, value in os.environ.items() if name == "JAVA_HOME"},
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(lambda: "the token tr_" in log.read_text(), 60)
            answers = time.monotonic()
            (url,) = re.findall(r"answers at (\S+)", log.read_text())
            (token,) = re.findall(r"token (tr_\S+)", log.read_text())
            page = signed_in(browser, url, token, said)
            page.get_by_role("link", name="New pipeline").click()
            page.get_by_label("Name").fill("shop")
            editor = page.get_by_label("Pipeline file")
            start = editor.input_value()
            mine = re.sub(r"mysql://\S+", f"mysql://{mysql.host}:{mysql.port}/{database}", start)
            mine = mine.replace("user: reader", f"user: {mysql.user}").replace(
                "shop\\..*", f"{database}\\..*"
            )
            assert mine.count(database) == 2
            editor.fill(mine.replace("new-pipeline", "shop"))
            page.locator("#findings").get_by_text("The file is valid").wait_for()
            page.get_by_role("button", name="Check the source").click()
            page.locator("#findings").get_by_text("Nothing keeps the pipeline from running").wait_for()
            page.get_by_role("button", name="Create").click()
            created = time.monotonic()
            row = page.locator("#tables tbody tr").filter(has_text=f"{database}.orders")
            row.get_by_text("following the log").wait_for(timeout=_PATIENCE_S * 1000)
            rows = polars.read_delta(str(data / "lake/shop" / f"{database}.orders"))
            done = time.monotonic()
            page.get_by_role("button", name="Pause").click()
            page.locator("#summary h1 .badge").get_by_text("paused", exact=True).wait_for(timeout=90_000)
            page.close()  # it would tell that the server has ended
        except BaseException:
            for file in (log, *data.glob("**/worker.out"), *data.glob("**/*.log")):
                print(f"---- {file.relative_to(home)}", file.read_text()[-4000:], sep="\n")  # noqa: T201 - why
            raise
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
    figures = {
        "build": built - begun,
        "install": installed - built,
        "server answers": answers - installed,
        "created": created - answers,
        "rows in the target": done - created,
    }
    print({what: f"{seconds:.1f} s" for what, seconds in figures.items()})  # noqa: T201 - the figures
    assert sorted(rows.select("id", "note").rows()) == [(1, "one"), (2, "two")]
    assert done - installed < MOST_S
    assert said == []
