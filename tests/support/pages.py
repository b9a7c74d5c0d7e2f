"""A control plane for the tests of its pages: a database with pipelines in every state, and a client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from httpx import Response
from markupsafe import escape
from sqlalchemy import select, update
from starlette.testclient import TestClient

from tailrace.control import leases, progress, servers, subscriptions, tokens
from tailrace.control.api.app import create_app
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.operations import Control
from tailrace.control.policy import Policy
from tailrace.control.progress import TableReport
from tailrace.control.servers import ServerInfo
from tailrace.control.stages import Desired, Stage
from tailrace.control.tokens import Scope
from tailrace.errors import SinkError, TransientSourceError
from tailrace.printable import printable

#: Text that would do harm in a page, or look like something else.
HOSTILE = "<script>alert(1)</script>\"'`&{{7*7}}\u202etxt.exe\x1b[31m"
#: How it is shown.
SHOWN = str(escape(printable(HOSTILE)))

FILE = """\
source:
  url: mysql://db.example:3306/shop
  user: reader
  password: ${env:TAILRACE_SECRET_SHOP}
  tables: shop\\..*
transform:
  - source-table: shop\\.customers
    projection: id, name, UPPER(email) AS email
    description: mask e-mail addresses
route:
  - source-table: shop\\.(.*)
    sink-table: lake.$1
sink:
  - {type: delta, path: lake/NAME}
  - {type: kafka, bootstrap-servers: "broker.example:9092", topic-prefix: NAME}
pipeline:
  checkpoint: lake/NAME/_checkpoint
"""


@dataclass(frozen=True)
class Browser:
    """A client that reads forms as a browser does."""

    client: TestClient

    def get(self, path: str) -> str:
        """The page at `path`, which exists."""
        response = self.client.get(path)
        assert response.status_code == 200, response.text
        return response.text

    def form(self, page: str, action: str) -> dict[str, str]:
        """The hidden fields of the form of a page that goes to `action`."""
        found = re.search(
            rf'<form[^>]*method="post" action="{re.escape(action)}".*?</form>', self.get(page), re.S
        )
        assert found, f"{page} has no form for {action}"
        return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', found[0]))

    def send(self, page: str, action: str, **fields: str) -> Response:
        """Send the form of a page that goes to `action`."""
        return self.client.post(action, data={**self.form(page, action), **fields})

    def sign_in(self, token: str) -> Browser:
        """Sign in with a token."""
        assert self.send("/sign-in", "/sign-in", token=token).status_code == 303
        return self


def token_of(database: ControlDatabase, scope: Scope) -> str:
    """A new token, called by its scope and a number."""
    with database.begin() as connection:
        number = len(tokens.all_tokens(connection))
        return tokens.create(connection, "ann", f"{scope}-{number}", scope)[1]


def control(database: ControlDatabase, data_dir: Path = Path("/nowhere")) -> Control:
    """The control plane of a database, which allows what FILE needs."""
    return Control(database, data_dir, Policy(hosts=("*.example",), look_up=lambda _: ()))


@contextmanager
def browsing(
    database: ControlDatabase, scope: Scope | None = Scope.ADMIN, data_dir: Path = Path("/nowhere")
) -> Iterator[Browser]:
    """A browser at the pages of a database, signed in with a scope; None: not signed in."""
    with TestClient(create_app(control(database, data_dir)), follow_redirects=False) as client:
        browser = Browser(client)
        yield browser if scope is None else browser.sign_in(token_of(database, scope))


def fill(database: ControlDatabase) -> None:
    """Pipelines in every state, and servers."""
    with database.begin() as connection:
        for name in ("billing", "crm", "inventory", "shop", "shop-archive", "warehouse", "weblog"):
            subscriptions.create(connection, "ann", name, FILE.replace("NAME", name))
        subscriptions.set_desired(connection, "ann", "shop-archive", Desired.PAUSE)
        subscriptions.set_desired(connection, "ann", "weblog", Desired.CANCEL)
        held = {lease.name: lease for _, lease in leases.claim(connection, "server-1", leases.Room(4))}
        held |= {lease.name: lease for _, lease in leases.claim(connection, "server-2", leases.Room(4))}
        now = int(connection.execute(select(now_us())).scalar_one())
        progress.report(connection, held["shop"], Stage.INCREMENTAL_LOG, _shop(now))
        progress.report(connection, held["inventory"], Stage.SNAPSHOT, _inventory())
        progress.report(
            connection,
            held["crm"],
            Stage.INCREMENTAL_LOG,
            [_following("crm.contacts", now, 84_000), _following("crm.notes", now, 1_200_000)],
        )
        progress.failed(connection, held["billing"], refused(), retries=False)
        progress.failed(connection, held["warehouse"], unreachable(), retries=True)
        hour_us = 3_600_000_000
        of = table.c
        connection.execute(update(table).where(of.owner.is_not(None)).values(lease_until_us=now + hour_us))
        connection.execute(update(table).where(of.retry_us.is_not(None)).values(retry_us=now + hour_us))
        for number, running in ((1, 2), (2, 1)):
            servers.seen(
                connection,
                ServerInfo(
                    f"server-{number}", f"host-{number}", 4000 + number, "", 8, running, number == 2, "0.1.0"
                ),
            )


def refused() -> SinkError:
    """An error that ends a pipeline."""
    return SinkError(
        "table `lake.invoices` was changed by somebody else",
        "found column `total` of type string, needed decimal(12,2)",
        "ALTER TABLE lake.invoices ALTER COLUMN total TYPE decimal(12,2);\nthen retry",
        code="TR-4101",
    )


def unreachable() -> TransientSourceError:
    """An error that may pass."""
    return TransientSourceError(
        "`db.example:3306` does not answer", "connection refused", "start the server", code="TR-2001"
    )


def _following(name: str, now: int, rows: int, behind_s: float = 1.5) -> TableReport:
    return TableReport(
        name, "incremental_log", rows=rows, complete_us=now - int(behind_s * 1e6), changes=rows // 7
    )


def _shop(now: int) -> list[TableReport]:
    parked = TableReport(
        "shop.orders",
        "failed",
        rows=2_400_000,
        changes=310_000,
        error={
            "code": "TR-4102",
            "message": "column `amount` of table `shop.orders` has a type that the target cannot hold",
            "detail": "found decimal(38,10), the target's column is decimal(12,2)",
            "hint": "ALTER TABLE lake.orders ALTER COLUMN amount TYPE decimal(38,10);",
        },
    )
    again = TableReport("shop.order_lines", "reread", "[7]", 3_100_000, 9_000_000, changes=4_000_000)
    names = ("customers", "addresses", "carts", "payments", "products", "returns", "stock", "vouchers")
    return [parked, again, *(_following(f"shop.{name}", now, 120_000 + 977 * len(name)) for name in names)]


def _inventory() -> list[TableReport]:
    return [
        TableReport("inventory.items", "snapshot", "[812]", 640_000, 2_000_000),
        TableReport("inventory.places", "snapshot", "[1]", 12_000, 15_000),
        TableReport("inventory.moves", "snapshot", estimated=48_000_000),
    ]
