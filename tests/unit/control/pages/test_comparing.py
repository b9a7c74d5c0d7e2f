"""The page of comparisons: what is known, who may ask for more, and what a stream makes of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from tailrace.control import jobs, leases, progress, subscriptions
from tailrace.control.audit import read_events
from tailrace.control.job_execution import JobExecutor
from tailrace.control.jobs import JobKind, JobState
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.progress import TableReport
from tailrace.control.stages import Desired, Stage
from tailrace.control.tokens import Scope
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.signals import Context, answered
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.verify_state import Asked, Comparison, VerifyState
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.support.pages import FILE, HOSTILE, SHOWN, Browser, browsing, control

PAGE = "/pipelines/shop/comparisons"
ASK = f"{PAGE}/new"
#: A name that no pattern may read as anything else.
ODD = f"shop.{HOSTILE} .*\n "
TABLES = ["shop.a", "shop.b", "shop.b2", ODD]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ControlDatabase]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/t.db")
    database.prepare()
    yield database
    database.close()


def create(database: ControlDatabase, spec: str = FILE, tables: list[str] = TABLES) -> None:
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", spec.replace("NAME", "shop"))
        ((_, lease),) = leases.claim(connection, "s", leases.Room(1))
        # for an hour: nobody renews it, however slow the machine is
        connection.execute(update(table).values(lease_until_us=now_us() + 3_600_000_000))
        reports = [TableReport(name, "incremental_log") for name in tables]
        progress.report(connection, lease, Stage.INCREMENTAL_LOG, reports)


def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "lake/shop/_checkpoint")


def press(browser: Browser, comparison: str, *chosen: str) -> None:
    """Press a button of the page, with the boxes of some tables checked."""
    page = browser.get(PAGE)
    boxes = dict(re.findall(r'name="table" value="([\w-]+)"[^>]* aria-label="Select ([^"]*)"', page))
    named = {html.unescape(text): reference for reference, text in boxes.items()}
    fields = {**browser.form(PAGE, ASK), "table": [named[name] for name in chosen], "comparison": comparison}
    answer = browser.client.post(ASK, data=fields)
    assert answer.status_code == 303, answer.text
    assert "Asked to" in browser.get(answer.headers["location"])


def work(database: ControlDatabase, tmp_path: Path) -> None:
    """What the server that owns the pipeline does about its jobs."""
    JobExecutor(control(database, tmp_path), "s").look()


def accepted(tmp_path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """What a stream that captures TABLES makes of what was asked: types and tables."""
    offset = StreamOffset("initial", {"pos": 1})
    context = Context({name: TableSchema(TableId.parse(name), ()) for name in TABLES}, "mysql", compares=True)
    for request in RequestDirectory(requests_path(checkpoint(tmp_path))).pending():
        offset = answered(offset, request, context)
    assert {answer.status for answer in offset.answers} <= {"ACCEPTED"}
    return [(answer.signal, answer.tables) for answer in offset.answers]


def shown(page: str, part: int = -1) -> list[str]:
    """Rows without tags: by default table, sink and result of each."""
    body, _, _ = page.split("<tbody>")[1:][part].partition("</tbody>")
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in rows]


def test_chosen_tables_and_all_are_asked_for(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        odd = next(
            html.unescape(label)
            for label in re.findall(r'aria-label="Select ([^"]*)"', browser.get(PAGE))
            if "script" in label
        )
        press(browser, "verify", "shop.b", odd)
        press(browser, "repair", "shop.a")
        press(browser, "verify-all")
        press(browser, "repair-all", "shop.a")
        waiting = browser.get(PAGE)
    work(database, tmp_path)
    assert accepted(tmp_path) == [
        ("verify", ("shop.b", ODD) if ODD > "shop.b" else (ODD, "shop.b")),
        ("repair", ("shop.a",)),
        ("verify", ()),
        ("repair", ()),
    ]
    assert [row.split(" the server")[0] for row in shown(waiting, 0)] == [
        "4 repair, all tables waits",
        "3 verify, all tables waits",
        "2 repair, shop.a waits",
        "1 verify, 2 tables waits",
    ]
    events = database.read(lambda connection: read_events(connection, "shop"))
    assert [event.kind for event in events[:4]] == ["job.create"] * 4
    assert {event.actor for event in events[:4]} == {"operate-0"}


def test_jobs_are_shown_with_their_results_and_cancelled(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with database.begin() as connection:
        made = [jobs.create(connection, "ann", "shop", JobKind.VERIFY, [ODD])[0] for _ in range(4)]
        error = {"code": "TR-8486", "message": HOSTILE, "detail": HOSTILE, "hint": None}
        table = {"source": "", "sink": "delta", "target": "t", "table": ODD, "differences": 1234}
        jobs.end(connection, "s", made[0], JobState.DONE, {"error": None, "tables": [table]})
        jobs.end(connection, "s", made[1], JobState.FAILED, {"error": error, "tables": []})
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
        assert "/comparisons/cancel" not in page
        form = browser.form("/", "/sign-out")
        assert browser.client.post(f"{PAGE}/cancel", data={**form, "job": 3}).status_code == 403
    assert "rows that differ: 1,234" in page
    assert "TR-8486" in page
    assert SHOWN in page
    assert "<script>alert" not in page
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        form = browser.form(PAGE, f"{PAGE}/cancel")
        answer = browser.client.post(f"{PAGE}/cancel", data={**form, "job": made[3].id})
        assert answer.status_code == 303
        assert "Asked to cancel" in browser.get(answer.headers["location"])
        for number, code in ((made[0].id, "TR-8483"), (99, "TR-8480"), (0, "TR-8463")):
            assert code in browser.client.post(f"{PAGE}/cancel", data={**form, "job": number}).text
        assert [row.endswith("Cancel") for row in shown(browser.get(PAGE), 0)] == [False, True, False, False]
    with database.begin() as connection:
        assert jobs.get(connection, "shop", made[3].id).state is JobState.CANCELLED


def test_results_are_shown_those_that_differ_first(database: ControlDatabase, tmp_path: Path) -> None:
    create(database, tables=["shop.a", "shop.b", "shop.c", "shop.customers", "shop.d", "shop.e"])
    at = 1_700_000_000_000
    known = {
        "shop.a": Comparison(1, 2, 3, at_ms=at, batch=7, source_rows=5, target_rows=5, differences=0),
        "shop.b": Comparison(1, 2, 3, at_ms=at, batch=8, source_rows=1234, target_rows=1, differences=1233),
        "shop.c": Comparison(
            1, 2, 3, at_ms=at, batch=9, source_rows=1, target_rows=1, differences=0, found=4
        ),
        "shop.d": Comparison(1, 2, at_ms=at, batch=9, source_rows=1, target_rows=1, differences=0),
        "shop.e": Comparison(1, reason=HOSTILE),
    }
    state = VerifyState(3, {"delta": known}, (Asked("x", "repair", ("shop.b", "shop.c")),))
    state.write(checkpoint(tmp_path))
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
        filtered = shown(browser.get(f"{PAGE}?text=SHOP.B"))
    rows = shown(page)
    assert rows[0] == "shop.b delta different rows that differ: 1,233 2023-11-14 22:13:20 UTC 1 234 1 8"
    assert rows[1].startswith("shop.e delta never compared not compared now: <script>alert(1)</script>")
    assert rows[2:] == [
        "shop.a delta equal 2023-11-14 22:13:20 UTC 5 5 7",
        "shop.c delta repaired before its repair: 4 2023-11-14 22:13:20 UTC 1 1 9",
        "shop.d delta equal is being compared 2023-11-14 22:13:20 UTC 1 1 9",
        "shop.customers not compared: the pipeline transforms its rows delta never compared – – – –",
    ]
    assert filtered == rows[:1]
    assert "repair, 2 tables" in page
    assert SHOWN in page
    assert "<script>alert" not in page


def test_reader_sees_results_and_asks_for_nothing(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
        form = browser.form("/", "/sign-out")
        for comparison in ("verify", "repair", "verify-all", "repair-all"):
            refused = browser.client.post(ASK, data={**form, "comparison": comparison, "table": "AHNob3AuYQ"})
            assert refused.status_code == 403
            assert "TR-8464" in refused.text
    assert ASK not in page
    assert not Path(checkpoint(tmp_path)).exists()


def test_form_of_nobody_else_is_taken(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with browsing(database, Scope.ADMIN, tmp_path) as browser:
        form = browser.form(PAGE, ASK)
        for fields, headers in (
            ({"form_token": "0" * 64}, {}),
            ({}, {}),
            (form, {"origin": "https://elsewhere.example"}),
        ):
            refused = browser.client.post(ASK, data={**fields, "comparison": "repair-all"}, headers=headers)
            assert refused.status_code == 403
            assert "TR-8460" in refused.text
    assert not Path(checkpoint(tmp_path)).exists()


def test_wrong_choice_is_refused(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    wrong = [
        ({"comparison": "verify"}, "TR-8463"),
        ({"comparison": "drop"}, "TR-8463"),
        ({"comparison": "verify", "table": "%%%"}, "TR-8463"),
        ({"comparison": "verify", "table": "AG90aGVyLmE"}, "TR-1302"),  # other.a
    ]
    with browsing(database, Scope.ADMIN, tmp_path) as browser:
        form = browser.form(PAGE, ASK)
        for fields, code in wrong:
            refused = browser.client.post(ASK, data={**form, **fields})
            assert refused.status_code == 400
            assert code in refused.text
    assert not Path(checkpoint(tmp_path)).exists()


def test_pipeline_that_cannot_be_compared_says_why(database: ControlDatabase, tmp_path: Path) -> None:
    create(database, FILE.replace("  - {type: delta, path: lake/NAME}\n", ""))
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        page = browser.get(PAGE)
        form = browser.form("/", "/sign-out")
        refused = browser.client.post(ASK, data={**form, "comparison": "verify-all"})
    assert "TR-8103" in page
    assert "none of the sinks can be compared" in page
    assert ASK not in page
    assert "TR-8103" in refused.text
    with browsing(database, Scope.READ, tmp_path) as browser:
        assert "TR-8103" not in browser.get(PAGE)


def test_cancelled_pipeline_compares_nothing(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", Desired.CANCEL)
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        page = browser.get(PAGE)
    assert "The pipeline is cancelled" in page
    assert ASK not in page


def test_results_come_by_the_page(database: ControlDatabase, tmp_path: Path) -> None:
    create(database, tables=[f"shop.t{i:03}" for i in range(120)])
    different = Comparison(1, 2, 3, at_ms=4, batch=1, source_rows=1, target_rows=2, differences=1)
    VerifyState(1, {"delta": {"shop.t117": different}}).write(checkpoint(tmp_path))
    with browsing(database, Scope.READ, tmp_path) as browser:
        pages = [
            re.findall(r'<th scope="row"[^>]*>(shop\.t\d+)', browser.get(f"{PAGE}?page={number}"))
            for number in (1, 2, 3)
        ]
    assert [len(names) for names in pages] == [50, 50, 20]
    assert pages[0][0] == "shop.t117"
    assert len({name for names in pages for name in names}) == 120


def test_checkpoint_that_cannot_be_read_is_an_error_of_the_part_alone(
    database: ControlDatabase, tmp_path: Path
) -> None:
    create(database)
    path = Path(checkpoint(tmp_path), "_tailrace/verify.json")
    path.mkdir(parents=True)
    with browsing(database, Scope.READ, tmp_path) as browser:
        page = browser.get(PAGE)
        assert "TR-8465" in page
        assert "/nowhere" not in page
        assert json.dumps(str(path)) not in page
        assert 'id="comparisons"' in page


def test_session_that_has_ended_puts_no_page_into_another(database: ControlDatabase, tmp_path: Path) -> None:
    create(database)
    with browsing(database, None, tmp_path) as browser:
        assert browser.client.get(PAGE, headers={"hx-request": "true"}).status_code == 401
        assert browser.client.get(PAGE).status_code == 303


SOURCES = """\
sources:
  - {name: east, url: 'mysql://east.example/shop', user: u, password: '${env:TAILRACE_SECRET_A}', tables: .*}
  - {name: west, url: 'mysql://west.example/shop', user: u, password: '${env:TAILRACE_SECRET_A}', tables: .*}
sink: {type: delta, path: lake/shop}
route: [{source-table: 'shop[.](.*)', sink-table: '{source}_$1'}]
"""


def test_tables_of_several_sources_are_told_apart(database: ControlDatabase, tmp_path: Path) -> None:
    with database.begin() as connection:
        subscriptions.create(connection, "ann", "shop", SOURCES)
        ((_, lease),) = leases.claim(connection, "s", leases.Room(1))
        for source in ("east", "west"):
            report = TableReport("shop.a", "incremental_log", source=source)
            progress.report(connection, lease, Stage.INCREMENTAL_LOG, [report], source)
    east, west = (pipeline.checkpoint for pipeline in control(database, tmp_path).pipelines(SOURCES, "shop"))
    equal = Comparison(1, 2, 3, at_ms=4, batch=7, source_rows=5, target_rows=5, differences=0)
    VerifyState(3, {"delta": {"shop.a": equal}}).write(west)
    with browsing(database, Scope.OPERATE, tmp_path) as browser:
        page = browser.get(PAGE)
        form = browser.form(PAGE, ASK)
        boxes = re.findall(r'name="table" value="([\w-]+)"', page)
        for fields in ({"comparison": "verify", "table": boxes}, {"comparison": "repair-all"}):
            assert browser.client.post(ASK, data={**form, **fields}).status_code == 303
    work(database, tmp_path)
    assert [row.split(" 1970")[0] for row in shown(page)] == [
        "west: shop.a delta equal",
        "east: shop.a delta never compared – – – –",
    ]
    for path in (east, west):
        signals = [request.signal for request in RequestDirectory(requests_path(path)).pending()]
        assert [(one.type, one.data) for one in signals if one] == [
            ("verify", {"data-collections": [r"(?:shop\.a)"]}),
            ("repair", {}),
        ]
