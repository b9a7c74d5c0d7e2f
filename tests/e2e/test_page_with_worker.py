"""A pipeline's whole life in a browser, with a server and a worker: from a source's tables to rows in Delta.

UPDATE_DOCS=1 writes the screenshots of the documentation.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pymysql
import pytest
from deltalake import DeltaTable

from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.tokens import Scope
from tailrace_dev.servers import MySqlServer, start_mysql
from tests.support.browser import chromium, signed_in
from tests.support.control_servers import ControlServer
from tests.support.pages import token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).parents[2] / "docs" / "img"
#: The screenshots of the documentation.
DOCUMENTED = {"hint-light", "different-light"}
#: Rows of `orders` at the start.
ROWS = 20_000
#: How long a step of the worker may take on a loaded machine, milliseconds.
PATIENCE_MS = 180_000
SPEC = """\
source:
  url: mysql://{host}:{port}/shop
  user: reader
  password: ${{env:TEST_PASSWORD}}
  tables: shop\\..*
  # slowly, to be seen
  snapshot-chunk-rows: 500
  snapshot-max-rows-per-second: 4000
sink: {{type: delta, path: lake/shop, mode: upsert}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def source() -> Iterator[MySqlServer]:
    """A server of this test's own, with a shop and a user for the pipeline."""
    with start_mysql() as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, amount DECIMAL(12,2), at DATETIME(3), note TEXT)",
            "SET SESSION cte_max_recursion_depth = 1000000",
            "INSERT INTO shop.orders WITH RECURSIVE s AS "
            f"(SELECT 1 id UNION ALL SELECT id + 1 FROM s WHERE id < {ROWS}) "
            "SELECT id, id / 7, '2026-01-31 12:00:00' + INTERVAL id SECOND, IF(id % 5, NULL, 'gift') FROM s",
            "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(80), email VARCHAR(80))",
            "INSERT INTO shop.customers SELECT id, CONCAT('customer ', id), CONCAT(id, '@example.com') "
            "FROM shop.orders WHERE id <= 2000",
            "CREATE TABLE shop.stock (place INT, item INT, pieces INT, PRIMARY KEY (place, item))",
            "INSERT INTO shop.stock SELECT id % 20, id, id % 13 FROM shop.orders WHERE id <= 1000",
            "CREATE USER reader IDENTIFIED BY 'reader-secret'",
            "GRANT SELECT ON shop.* TO reader",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader",
        )
        yield server


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    yield database
    database.close()


class Shop:
    """The shop's tables and their targets.

    Args:
        source: the server.
        lake: where the targets are.
    """

    def __init__(self, source: MySqlServer, lake: Path) -> None:
        self._source, self._lake = source, lake

    def target(self, table: str) -> str:
        return str(self._lake / f"shop.{table}")

    def difference(self) -> str:
        """The first table whose target does not equal it, with what is wrong; "": there is none."""
        for table, columns in {
            "orders": ("id", "amount", "at", "note"),
            "customers": ("id", "name", "email"),
            "stock": ("place", "item", "pieces"),
        }.items():
            rows = self._source.execute(f"SELECT {', '.join(columns)} FROM shop.{table}")
            truth = polars.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None)
            held = polars.read_delta(self.target(table)).select(columns)
            mine, its = (sorted(map(repr, frame.rows())) for frame in (truth, held))
            if mine != its:
                lacks, wrong = len(set(mine) - set(its)), len(set(its) - set(mine))
                return f"{table}: {len(mine)} rows, target {len(its)}; {lacks} lacking, {wrong} wrong"
        return ""

    def require_equal(self, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while found := self.difference():
            assert time.monotonic() < deadline, found
            time.sleep(0.5)


class Session:
    """Somebody at the page of a pipeline.

    Args:
        page: the page.
        url: where the pages are.
        pictures: where screenshots go that are not of the documentation.
    """

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self.page, self.url, self._pictures = page, url, pictures
        page.set_default_timeout(30_000)

    def wait_for_health(self, word: str) -> None:
        self.page.locator("#summary h1 .badge").get_by_text(word, exact=True).wait_for(timeout=PATIENCE_MS)

    def press(self, button: str, of: Any = None, *, sure: bool = False) -> None:
        """Press a button; `sure`: and say yes."""
        (of or self.page).get_by_role("button", name=button, exact=True).click()
        if sure:
            self.page.locator("#confirm-yes").click()

    def row(self, table: str) -> Any:
        return self.page.locator("#tables tbody tr").filter(has=self.page.get_by_text(table, exact=True))

    def picture(self, name: str) -> None:
        self.page.wait_for_timeout(300)
        update = os.environ.get("UPDATE_DOCS") and name in DOCUMENTED
        self.page.screenshot(path=(IMAGES if update else self._pictures) / f"page-{name}.png")


def test_pipeline_lives_in_the_browser_from_discovery_to_repair(
    source: MySqlServer, database: ControlDatabase, browser: Browser, tmp_path: Path
) -> None:
    shop = Shop(source, tmp_path / "lake" / "shop")
    server = ControlServer("server-1", database, tmp_path, {"TEST_PASSWORD": "reader-secret"})
    said: list[str] = []
    try:
        url = server.url()
        page = signed_in(browser, url, token_of(database, Scope.ADMIN), said)
        look = Session(page, url, tmp_path)
        create(look, source)
        watch_snapshot(look, shop)
        outlive_a_stopped_source(look, source, shop)
        look_at_changes(look, source)
        follow_the_hint(look, source, shop)
        park_and_resync(look, source, shop)
        find_and_repair_a_difference(look, shop)
        source.execute(
            "UPDATE shop.orders SET amount = amount + 1 WHERE id % 3 = 0",
            "DELETE FROM shop.stock WHERE place = 4",
        )
        shop.require_equal()
        look.press("Pause")
        look.wait_for_health("paused")
        assert shop.difference() == ""
    except BaseException:
        print(server.output(), page.locator("main").inner_text(), sep="\n")  # noqa: T201 - why
        raise
    finally:
        server.close()
    assert said == []


def create(look: Session, source: MySqlServer) -> None:
    page = look.page
    page.get_by_role("link", name="New pipeline").click()
    page.get_by_label("Name").fill("shop")
    page.get_by_label("Pipeline file").fill(SPEC.format(host=source.host, port=source.port))
    findings = page.locator("#findings")
    findings.get_by_text("The file is valid").wait_for()
    look.press("Find tables")
    findings.get_by_text("3 tables match").wait_for()
    for table in ("orders", "customers", "stock"):
        findings.get_by_text(f"shop.{table}", exact=True).wait_for()
    look.press("Check everything")
    findings.get_by_text("Nothing keeps the pipeline from running").wait_for(timeout=PATIENCE_MS)
    look.press("Create")
    page.get_by_role("status").filter(has_text="Created.").wait_for()


def watch_snapshot(look: Session, shop: Shop) -> None:
    look.wait_for_health("running")
    bar = look.row("shop.orders").locator("progress")
    bar.wait_for(timeout=PATIENCE_MS)
    first = float(bar.get_attribute("value") or 0)
    look.page.wait_for_function(
        "before => { const bar = document.querySelector('#tables progress');"
        " return !bar || bar.value > before }",
        arg=first,
        timeout=PATIENCE_MS,
    )
    look.picture("snapshot-light")
    look.row("shop.orders").get_by_text("following the log").wait_for(timeout=PATIENCE_MS)
    shop.require_equal()


def outlive_a_stopped_source(look: Session, source: MySqlServer, shop: Shop) -> None:
    """The page says what fails while the worker tries again by itself, and no longer once it goes on."""
    stopped = time.monotonic()
    source.stop()
    look.wait_for_health("retrying")
    seconds = time.monotonic() - stopped
    print(f"that the source does not answer is shown after {seconds:.1f} s")  # noqa: T201 - the figure
    assert seconds < 20
    problem = look.page.locator("#summary .error")
    assert re.search(r"TR-\d{4}", problem.locator("code").inner_text())
    problem.get_by_text(re.compile(r"^since \d{4}-")).wait_for()
    problem.get_by_text("What to do").wait_for()
    look.picture("retrying-light")
    source.start()
    source.execute("INSERT INTO shop.orders VALUES (-1, 1.25, NOW(3), 'after the stop')")
    look.wait_for_health("running")
    problem.wait_for(state="detached")
    shop.require_equal()


def look_at_changes(look: Session, source: MySqlServer) -> None:
    """The last changes appear while somebody looks, their values when asked for; then they are removed."""
    page, customer = look.page, iter(range(200, 400))

    def change() -> None:
        source.execute(f"UPDATE shop.customers SET email = 'new@example.com' WHERE id = {next(customer)}")

    page.get_by_role("link", name="Look at the last changes").click()
    page.get_by_text("No change since somebody looks").wait_for()
    part = page.locator("#live-changes section").filter(has=page.get_by_text("shop.customers", exact=True))
    deadline = time.monotonic() + 60
    while not part.count():
        assert time.monotonic() < deadline
        change()
        page.wait_for_timeout(2000)
    row = part.get_by_role("row").filter(has_text="update").first
    assert re.search(r"update\s+id\s2\d\d\s+email", row.inner_text()), row.inner_text()
    assert "example.com" not in part.inner_text()
    look.press("Show values", part, sure=True)
    page.get_by_role("status").filter(has_text="shown for a minute").wait_for()
    while not part.get_by_text("new@example.com").count():
        assert time.monotonic() < deadline + 60
        change()
        page.wait_for_timeout(2000)
    look.picture("changes-light")
    page.goto(look.url + "/pipelines/shop")
    page.get_by_text("subscription.show_values").wait_for()


def follow_the_hint(look: Session, source: MySqlServer, shop: Shop) -> None:
    """A definite error ends the pipeline; the page says which statement helps, and goes on from there."""
    source.execute("REVOKE REPLICATION SLAVE ON *.* FROM reader")
    for (number,) in source.execute("SELECT id FROM information_schema.processlist WHERE user = 'reader'"):
        with suppress(pymysql.err.OperationalError):  # it has just ended by itself
            source.execute(f"KILL {number}")
    look.wait_for_health("failed")
    problem = look.page.locator("#summary .error")
    hint = problem.locator("pre").inner_text()
    look.picture("hint-light")
    assert "GRANT REPLICATION SLAVE" in hint, problem.inner_text()
    source.execute("GRANT REPLICATION SLAVE ON *.* TO reader")
    source.execute("UPDATE shop.customers SET name = UPPER(name) WHERE id < 100")
    look.press("Retry now")
    look.wait_for_health("running")
    problem.wait_for(state="detached")
    shop.require_equal()


def park_and_resync(look: Session, source: MySqlServer, shop: Shop) -> None:
    look.press("Park", look.row("shop.stock"), sure=True)
    look.page.get_by_role("status").filter(has_text="Asked to park").wait_for()
    look.row("shop.stock").get_by_text("parked", exact=True).wait_for(timeout=PATIENCE_MS)
    look.wait_for_health("table parked")
    source.execute(
        "UPDATE shop.stock SET pieces = pieces + 100", "INSERT INTO shop.orders VALUES (-2, 2, NULL, NULL)"
    )
    deadline = time.monotonic() + 90
    while polars.read_delta(shop.target("orders")).filter(polars.col("id") == -2).is_empty():
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert "stock" in shop.difference()
    # resuming is all that helps a parked table
    assert look.row("shop.stock").get_by_role("button").all_inner_texts() == ["Resume"]
    look.press("Resume", look.row("shop.stock"))
    look.page.get_by_role("status").filter(has_text="Asked to resume the table").wait_for()
    look.wait_for_health("running")
    look.row("shop.stock").get_by_text("following the log").wait_for(timeout=PATIENCE_MS)
    shop.require_equal()
    # one that is not parked, and is then resumed
    look.press("Resync", look.row("shop.customers"), sure=True)
    look.row("shop.customers").get_by_text("read again").wait_for(timeout=PATIENCE_MS)
    look.row("shop.customers").get_by_text("following the log").wait_for(timeout=PATIENCE_MS)
    look.press("Park", look.row("shop.customers"), sure=True)
    look.row("shop.customers").get_by_text("parked", exact=True).wait_for(timeout=PATIENCE_MS)
    source.execute("DELETE FROM shop.customers WHERE id = 77")
    look.press("Resume", look.row("shop.customers"))
    look.row("shop.customers").get_by_text("following the log").wait_for(timeout=PATIENCE_MS)
    shop.require_equal()


def find_and_repair_a_difference(look: Session, shop: Shop) -> None:
    page = look.page

    def ask(button: str, *, sure: bool = False) -> None:
        look.press(button, sure=sure)
        page.get_by_role("status").filter(has_text="Asked to").wait_for()

    def result(table: str) -> Any:
        row = page.locator("#compare tbody tr").filter(has=page.get_by_text(f"shop.{table}"))
        return row.locator(".badge")

    DeltaTable(shop.target("orders")).delete("id BETWEEN 10 AND 14")
    DeltaTable(shop.target("orders")).update({"note": "'not from the source'"}, predicate="id = 100")
    page.goto(look.url + "/pipelines/shop/comparisons")
    ask("Verify all")
    result("orders").get_by_text("different").wait_for(timeout=PATIENCE_MS)
    result("stock").get_by_text("equal").wait_for(timeout=PATIENCE_MS)
    page.locator("#compare").get_by_text("rows that differ: 6").wait_for()
    look.picture("different-light")
    page.get_by_role("checkbox", name="Select shop.orders").check()
    ask("Repair selected", sure=True)
    result("orders").get_by_text("repaired").wait_for(timeout=PATIENCE_MS)
    page.locator("#compare").get_by_text("before its repair: 6").wait_for()
    shop.require_equal()
    ask("Verify all")
    result("orders").get_by_text("equal").wait_for(timeout=PATIENCE_MS)
    page.goto(look.url + "/pipelines/shop")
