"""A pipeline made in a browser, with a server and a worker: from a source's tables to rows in Delta."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest

from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.tokens import Scope
from tailrace_dev.servers import MySqlServer, start_mysql
from tests.support.browser import chromium, signed_in
from tests.support.control_servers import ControlServer
from tests.support.pages import token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

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
        pictures: where screenshots go.
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
        self.page.screenshot(path=self._pictures / f"page-{name}.png")


def test_pipeline_goes_from_discovery_to_rows_in_delta_in_the_browser(
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
