"""The control plane's database, of each kind: the same promises."""

from __future__ import annotations

import gc
import json
import socket
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text, update

from tailrace.control import (
    audit,
    jobs,
    leases,
    measurements,
    progress,
    servers,
    subscriptions,
    tokens,
)
from tailrace.control.jobs import JobKind, JobState
from tailrace.control.measurements import KEPT_S, SLOT_S, Measured
from tailrace.control.metadata import database as database_module
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.migrations import VERSION_TABLE
from tailrace.control.metadata.tables import metadata
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.progress import TableReport
from tailrace.control.stages import Desired, Stage
from tailrace.control.subscriptions import SubscriptionFilter
from tailrace.control.tokens import Scope
from tailrace.errors import (
    ConfigError,
    ControlError,
    LeaseLostError,
    SinkError,
    StateError,
    TransientControlError,
)
from tests.support import control
from tests.support.control import spec
from tests.support.control_servers import ControlServer
from tests.support.wait import wait_until


@pytest.fixture(params=control.KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlDatabase]:
    with control.database(request.param, request, tmp_path) as found:
        yield found


def _create(database: ControlDatabase, *names: str) -> None:
    with database.begin() as connection:
        for name in names:
            subscriptions.create(connection, "ann", name, spec(name))


def _expire(database: ControlDatabase, *names: str) -> None:
    """Let leases end now, as if their time had passed."""
    with database.begin() as connection:
        connection.execute(update(table).where(table.c.name.in_(names)).values(lease_until_us=now_us() - 1))


def _claim(database: ControlDatabase, server: str, most: int = 100) -> list[leases.Lease]:
    with database.begin() as connection:
        return [lease for _, lease in leases.claim(connection, server, leases.Room(most))]


def test_tables_are_those_of_the_migrations(database: ControlDatabase) -> None:
    def difference(connection: object) -> list[object]:
        context = MigrationContext.configure(
            connection,  # type: ignore[arg-type]
            opts={"version_table": VERSION_TABLE, "compare_type": True},
        )
        return list(compare_metadata(context, metadata))

    assert database.read(difference) == []


def test_upgrade_that_was_cut_off_is_done_again(database: ControlDatabase) -> None:
    for version, missing in (("0004", ""), ("0003", "measurements"), ("0001", "jobs"), ("", "")):
        with database.begin() as connection:
            if version:
                connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
            else:
                connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
            if missing:
                connection.execute(text(f"DROP TABLE {missing}"))
        database.prepare()
        test_tables_are_those_of_the_migrations(database)


def test_servers_that_start_together_prepare_it_once(database: ControlDatabase) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: database.prepare(), range(4)))


def test_database_of_a_newer_version_is_refused(database: ControlDatabase) -> None:
    with database.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StateError, match="newer version") as error:
        database.prepare()
    assert error.value.code == "TR-8405"


def test_servers_that_measure_at_the_same_time_write_one_row(database: ControlDatabase) -> None:
    _create(database, "shop")
    id_ = database.read(lambda connection: subscriptions.get(connection, "shop")).id
    at = database.now_us()

    def keep(number: int) -> None:
        measurements.keep(database, at, {id_: Measured(at, None, number, 0)})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keep, range(1, 5)))
    assert len(database.read(lambda connection: measurements.last_day(connection, id_))) == 1
    later = at + (KEPT_S + 2 * SLOT_S) * 1_000_000
    measurements.keep(database, later, {id_: Measured(later, 2**40, 2**40, 2**40)})
    (kept,) = database.read(lambda connection: measurements.last_day(connection, id_))
    assert kept == Measured(later, 2**40, 2**40, 2**40)


def test_created_twice_is_created_once(database: ControlDatabase) -> None:
    with database.begin() as connection:
        first, new = subscriptions.create(connection, "ann", "shop", spec("shop"))
        again, is_new = subscriptions.create(connection, "bob", "shop", spec("shop"))
        assert (new, is_new) == (True, False)
        assert first == again
        with pytest.raises(ControlError, match="another subscription"):
            subscriptions.create(connection, "ann", "shop", spec("shop") + "# other\n")
        assert first.desired is Desired.RUN
        assert first.stage is Stage.REGISTER
        assert first.spec == spec("shop")


def test_names_differ_by_case_and_unicode_is_kept(database: ControlDatabase) -> None:
    _create(database, "Shop", "shop")
    with database.begin() as connection:
        file = spec("shop") + "# übersicht 漢字 😀\n"
        subscriptions.change_spec(connection, "ann", "shop", file)
        assert subscriptions.get(connection, "shop").spec == file
        assert subscriptions.get(connection, "Shop").spec == spec("Shop")


def test_lost_updates_are_refused(database: ControlDatabase) -> None:
    _create(database, "shop")
    with database.begin() as connection:
        seen = subscriptions.get(connection, "shop").version
        subscriptions.set_desired(connection, "bob", "shop", Desired.PAUSE, seen)
        with pytest.raises(ControlError, match="has been changed") as error:
            subscriptions.change_spec(connection, "ann", "shop", spec("shop") + "#\n", version=seen)
        assert error.value.code == "TR-8414"
        assert subscriptions.get(connection, "shop").spec == spec("shop")


def test_secrets_are_refused_and_not_shown(database: ControlDatabase) -> None:
    wrong = spec("shop").replace("${env:SHOP_PASSWORD}", "hunter2")
    with database.begin() as connection:
        with pytest.raises(ConfigError, match=r"`source\.password` holds a secret") as error:
            subscriptions.create(connection, "ann", "shop", wrong)
        assert "hunter2" not in str(error.value)


def test_checkpoint_stays(database: ControlDatabase) -> None:
    _create(database, "shop")
    with database.begin() as connection, pytest.raises(ConfigError, match="checkpoint"):
        subscriptions.change_spec(
            connection, "ann", "shop", spec("shop") + "pipeline: {checkpoint: elsewhere}\n"
        )


def test_lists_in_pages_and_by_filters(database: ControlDatabase) -> None:
    _create(database, *(f"p{i:02d}" for i in range(7)), "under_score", "under-score")
    with database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "p03", Desired.PAUSE)
        names, after = [], ""
        while page := subscriptions.select_subscriptions(connection, SubscriptionFilter(after=after, most=4)):
            names += [each.name for each in page]
            after = page[-1].name
        assert sorted(names) == [*(f"p{i:02d}" for i in range(7)), "under-score", "under_score"]
        paused = subscriptions.select_subscriptions(connection, SubscriptionFilter(desired=Desired.PAUSE))
        assert [each.name for each in paused] == ["p03"]
        found = subscriptions.select_subscriptions(connection, SubscriptionFilter(text="r_s"))
        assert [each.name for each in found] == ["under_score"]
        assert subscriptions.count_by_stage(connection) == {Stage.REGISTER: 9}


def test_running_one_is_not_removed(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    with database.begin() as connection:
        with pytest.raises(ControlError, match="not stopped"):
            subscriptions.remove(connection, "ann", "shop")
        subscriptions.set_desired(connection, "ann", "shop", Desired.PAUSE)
        with pytest.raises(ControlError, match="run by server `s1`"):
            subscriptions.remove(connection, "ann", "shop")
        progress.report(connection, lease, Stage.SNAPSHOT, [TableReport("shop.orders", "snapshot")])
        leases.release(connection, lease)
        subscriptions.remove(connection, "ann", "shop")
        with pytest.raises(ControlError, match="there is no subscription"):
            subscriptions.get(connection, "shop")
        kinds = [event.kind for event in audit.read_events(connection, "shop")]
    assert kinds == [
        "subscription.delete",
        "subscription.stage",
        "subscription.pause",
        "subscription.create",
    ]


def test_one_whose_server_has_died_is_removed_once_its_lease_has_run_out(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    with database.begin() as connection:
        subscriptions.set_desired(connection, "ann", "shop", Desired.PAUSE)
        with pytest.raises(ControlError, match="run by server `s1`"):
            subscriptions.remove(connection, "ann", "shop")
    _expire(database, "shop")
    with database.begin() as connection:
        subscriptions.remove(connection, "ann", "shop")
    # it was only stopped, and wakes up
    with pytest.raises(LeaseLostError), database.begin() as connection:
        leases.begin_batch(connection, lease, "", 0, "{}")


def test_reason_says_since_when_a_subscription_does_not_go_on(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")

    def reason() -> dict[str, Any]:
        found = subscriptions.get(connection, "shop").reason
        return dict(found or {})

    with database.begin() as connection:
        progress.in_trouble(connection, lease, {"code": "TR-3003", "message": "no connection"})
        first = reason()
        assert first["message"] == "no connection"
        assert abs(first["since_us"] - database.now_us()) < 60_000_000
        connection.execute(update(table).values(stage_reason=json.dumps({**first, "since_us": 1})))
        progress.in_trouble(connection, lease, {"code": "TR-3002", "message": "no answer"})
        assert reason() == {"code": "TR-3002", "message": "no answer", "since_us": 1}
        progress.in_trouble(connection, lease, None)
        assert reason() == {}
        progress.failed(connection, lease, SinkError("no", code="TR-7008"), retries=True)
        assert reason()["since_us"] >= first["since_us"]


def test_cancelled_stays_cancelled(database: ControlDatabase) -> None:
    _create(database, "shop")
    with database.begin() as connection:
        assert subscriptions.set_desired(connection, "ann", "shop", Desired.CANCEL).stage is Stage.CANCELLED
        with pytest.raises(StateError, match="stays cancelled"):
            subscriptions.set_desired(connection, "ann", "shop", Desired.RUN)
    assert _claim(database, "s1") == []


def test_audit_has_before_and_after(database: ControlDatabase) -> None:
    _create(database, "shop")
    with database.begin() as connection:
        subscriptions.set_desired(connection, "bob", "shop", Desired.PAUSE)
        paused, created = audit.read_events(connection)
        assert (paused.actor, created.actor) == ("bob", "ann")
        assert paused.before is not None
        assert paused.after is not None
        assert (paused.before["desired"], paused.after["desired"]) == ("run", "pause")
        assert created.before is None
        assert audit.read_events(connection, before_id=paused.id) == [created]
        assert abs(paused.at_us - database.now_us()) < 60_000_000


def test_servers_that_claim_at_once_share_and_never_both_own(database: ControlDatabase) -> None:
    names = [f"p{i:02d}" for i in range(24)]
    _create(database, *names)
    start = threading.Barrier(4)

    def claim(server: str) -> list[leases.Lease]:
        start.wait()
        found: list[leases.Lease] = []
        while len(found) < 6:
            found += _claim(database, server, 2)
        return found

    with ThreadPoolExecutor(4) as pool:
        each = list(pool.map(claim, ("s1", "s2", "s3", "s4")))
    assert sorted(lease.name for found in each for lease in found) == names
    assert all(lease.number == 1 for found in each for lease in found)


def test_owner_that_does_not_renew_is_followed_by_another(database: ControlDatabase) -> None:
    _create(database, "shop")
    (first,) = _claim(database, "s1")
    assert _claim(database, "s2") == []
    with database.begin() as connection:
        assert leases.renew(connection, [first]) == set()
        leases.begin_batch(connection, first, "", 0, '{"v":1}')
    _expire(database, "shop")
    (second,) = _claim(database, "s2")
    assert (second.number, second.server) == (2, "s2")
    for action in (
        lambda c: leases.begin_batch(c, first, "", 1, "{}"),
        lambda c: leases.end_batch(c, first, "", 0),
        lambda c: progress.report(c, first, Stage.SNAPSHOT, []),
        lambda c: progress.failed(c, first, SinkError("no", code="TR-7008"), retries=True),
    ):
        with database.begin() as connection, pytest.raises(LeaseLostError):
            action(connection)
    with database.begin() as connection:
        assert leases.renew(connection, [first]) == {first}
        leases.release(connection, first)  # changes nothing
        leases.begin_batch(connection, second, "", 0, '{"v":1}')
        leases.end_batch(connection, second, "", 0)
        assert leases.renew(connection, [second]) == set()


def test_leases_of_a_worker_are_renewed_in_one_statement(database: ControlDatabase) -> None:
    _create(database, "a", "b", "c")
    held = _claim(database, "s1")
    with database.begin() as connection:
        assert leases.renew(connection, held) == set()
    _expire(database, "b")
    (other,) = _claim(database, "s2")
    with database.begin() as connection:
        assert {lease.name for lease in leases.renew(connection, held)} == {"b"}
        assert leases.renew(connection, [other]) == set()


def test_group_goes_to_the_server_that_runs_some_of_it(database: ControlDatabase) -> None:
    def room(workers: int, **groups: int) -> leases.Room:
        return leases.Room(workers, 3, groups)

    with database.begin() as connection:
        servers.seen(connection, servers.ServerInfo("s1", "host", 1, "", 4, 0, False, "1"))
        for name in ("a", "b"):
            subscriptions.create(connection, "ann", name, spec(name) + "pipeline: {group: g}\n")
        assert len(leases.claim(connection, "s1", room(1))) == 2
        subscriptions.create(connection, "ann", "c", spec("c") + "pipeline: {group: g}\n")
        assert leases.claim(connection, "s2", room(1)) == []
        assert [one.name for one, _ in leases.claim(connection, "s1", room(0, g=1))] == ["c"]


def test_same_server_gets_a_higher_number(database: ControlDatabase) -> None:
    """A server that lost its lease while it stood still must not take its own zombie for the owner."""
    _create(database, "shop")
    (first,) = _claim(database, "s1")
    _expire(database, "shop")
    (second,) = _claim(database, "s1")
    assert (first.number, second.number) == (1, 2)
    with database.begin() as connection, pytest.raises(LeaseLostError):
        leases.end_batch(connection, first, "", 0)


def test_another_checkpoint_is_refused(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    with database.begin() as connection:
        leases.begin_batch(connection, lease, "", 7, '{"at":7}')
        leases.begin_batch(connection, lease, "", 7, '{"at":7}')  # the same once more
        for batch, end in ((7, '{"at":8}'), (6, '{"at":6}')):
            with pytest.raises(StateError) as error:
                leases.begin_batch(connection, lease, "", batch, end)
            assert error.value.code == "TR-8421"
        leases.begin_batch(connection, lease, "", 8, '{"at":8}')


def test_progress_moves_forward_only_and_forgets_tables_that_are_gone(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    orders = TableReport("shop.orders", "snapshot", "[42]", 42, 1000)
    with database.begin() as connection:
        progress.report(connection, lease, Stage.SNAPSHOT, [orders, TableReport("shop.old", "snapshot")])
        done = TableReport("shop.orders", "incremental_log", rows=1000, position="binlog.1:4", changes=3)
        progress.report(connection, lease, Stage.INCREMENTAL_LOG, [done])
        progress.report(connection, lease, Stage.SNAPSHOT, [done])  # a table that was added
        found = subscriptions.get(connection, "shop")
        assert (found.stage, found.reached) == (Stage.INCREMENTAL_LOG, Stage.INCREMENTAL_LOG)
        (kept,) = progress.tables_of(connection, found.id)
        assert replace(kept, updated_us=0) == done


def test_failed_is_tried_again_later_and_goes_on_from_where_it_was(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    error = SinkError("no", "found x", "do y", code="TR-7008")
    with database.begin() as connection:
        progress.report(connection, lease, Stage.INCREMENTAL_LOG, [])
        progress.failed(connection, lease, error, retries=True)
        found = subscriptions.get(connection, "shop")
        assert (found.stage, found.failures) == (Stage.INCREMENTAL_LOG, 1)
        assert found.retry_us is not None
        assert found.retry_us > database.now_us()
    assert _claim(database, "s1") == []
    with database.begin() as connection:
        connection.execute(update(table).values(retry_us=now_us() - 1))
    (lease,) = _claim(database, "s2")
    with database.begin() as connection:
        progress.failed(connection, lease, error, retries=False)
        found = subscriptions.get(connection, "shop")
        assert (found.stage, found.reached) == (Stage.FAILED, Stage.INCREMENTAL_LOG)
        said = {"code": "TR-7008", "message": "no", "detail": "found x", "hint": "do y"}
        assert dict(found.reason or {}).items() >= said.items()
    assert _claim(database, "s1") == []
    with database.begin() as connection:
        assert subscriptions.retry(connection, "ann", "shop").stage is Stage.INCREMENTAL_LOG
    assert len(_claim(database, "s1")) == 1


def test_version_without_jobs_is_brought_to_this_one(database: ControlDatabase) -> None:
    _create(database, "shop")
    (index,) = (each for each in table.indexes if each.name == "ix_subscriptions_group_name")
    with database.begin() as connection:  # as 0001 left it
        index.drop(connection)
        connection.execute(text("ALTER TABLE subscriptions DROP COLUMN group_name"))
        connection.execute(text("DROP TABLE measurements"))
        connection.execute(text("DROP TABLE jobs"))
        connection.execute(text("DROP TABLE sessions"))
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    database.prepare()
    with database.begin() as connection:
        assert jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])[1]


def test_job_is_created_once_for_a_key(database: ControlDatabase) -> None:
    _create(database, "shop", "other")

    def create(_: int) -> tuple[jobs.TableJob, bool]:
        with database.begin() as connection:
            return jobs.create(connection, "ann", "shop", JobKind.REPAIR, ["shop.ü😀"], key="k")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(create, range(8)))
    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1
    assert found[0][0].tables == ("shop.ü😀",)
    with database.begin() as connection:
        assert jobs.create(connection, "ann", "shop", JobKind.REPAIR, ["shop.ü😀"], key="K")[1]
        assert jobs.create(connection, "ann", "other", JobKind.REPAIR, ["shop.ü😀"], key="k")[1]
        for changed in ({"kind": JobKind.VERIFY}, {"tables": []}, {"source": "a"}):
            given: dict[str, object] = {"kind": JobKind.REPAIR, "tables": ["shop.ü😀"], **changed}
            with pytest.raises(ControlError) as refused:
                jobs.create(connection, "ann", "shop", key="k", **given)  # type: ignore[arg-type]
            assert refused.value.code == "TR-8481"
        creations = [e.kind for e in audit.read_events(connection, "shop")]
    assert creations == ["job.create", "job.create", "subscription.create"]


def test_jobs_are_listed_in_pages_and_by_state(database: ControlDatabase) -> None:
    _create(database, "shop", "other")
    with database.begin() as connection:
        made = [jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])[0].id for _ in range(5)]
        jobs.create(connection, "ann", "other", JobKind.VERIFY, [])
        jobs.cancel(connection, "bob", "shop", made[2])
        first = jobs.select_jobs(connection, "shop", most=3)
        rest = jobs.select_jobs(connection, "shop", before=first[-1].id, most=3)
        assert [job.id for job in (*first, *rest)] == made[::-1]
        (cancelled,) = jobs.select_jobs(connection, "shop", state=JobState.CANCELLED)
        assert (cancelled.id, cancelled.ended_us is not None) == (made[2], True)
        with pytest.raises(ControlError) as refused:
            jobs.get(connection, "other", made[0])
        assert refused.value.code == "TR-8480"


def test_job_is_taken_under_the_lease_and_ends_once(database: ControlDatabase) -> None:
    _create(database, "shop")
    with database.begin() as connection:
        job, _ = jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])
        assert jobs.open_jobs(connection, "s1") == [], "nobody owns it"
    (first,) = _claim(database, "s1")
    with database.begin() as connection:
        (seen,) = jobs.open_jobs(connection, "s1")
        assert seen.lease == first
        assert jobs.open_jobs(connection, "s2") == []
        running = jobs.take(connection, job, first)
        assert running is not None
        assert jobs.take(connection, job, first) is None, "somebody was faster"
        jobs.report(connection, running, 1, 2)
    _expire(database, "shop")
    with database.begin() as connection:
        (left,) = jobs.open_jobs(connection, "s9")
        assert (left.lease, left.job.done, left.job.total) == (None, 1, 2)
    (second,) = _claim(database, "s2")
    with database.begin() as connection, pytest.raises(LeaseLostError):
        jobs.take(connection, running, first)
    with database.begin() as connection:
        again = jobs.take(connection, running, second)
        assert again is not None
        assert (again.attempts, again.lease, again.started_us) == (2, second.number, running.started_us)
        result = {"error": None, "tables": [{"source": "", "sink": "d", "target": "t", "differences": 7}]}
        assert jobs.end(connection, "s2", again, JobState.DONE, result)
        assert not jobs.end(connection, "s1", running, JobState.FAILED, {}), "it has ended"
        jobs.report(connection, running, 0, 9)
        found = jobs.get(connection, "shop", job.id)
        assert (found.state, found.done, found.total, found.differences) == (JobState.DONE, 1, 2, 7)
        with pytest.raises(ControlError) as refused:
            jobs.cancel(connection, "bob", "shop", job.id)
        assert refused.value.code == "TR-8483"


def test_job_that_runs_is_cancelled_by_its_server(database: ControlDatabase) -> None:
    _create(database, "shop")
    (lease,) = _claim(database, "s1")
    with database.begin() as connection:
        job, _ = jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])
        jobs.take(connection, job, lease)
        asked = jobs.cancel(connection, "bob", "shop", job.id)
        assert (asked.state, asked.is_cancelled) == (JobState.RUNNING, True)
        assert jobs.cancel(connection, "bob", "shop", job.id) == asked
        kinds = [event.kind for event in audit.read_events(connection, "shop")]
    assert kinds == ["job.cancel", "job.create", "subscription.create"]


def test_jobs_are_forgotten_in_time_and_with_their_subscription(database: ControlDatabase) -> None:
    _create(database, "shop", "other")
    with database.begin() as connection:
        kept = jobs.create(connection, "ann", "other", JobKind.VERIFY, [])[0]
        for _ in range(jobs.KEPT + 5):
            job, _ = jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])
            jobs.cancel(connection, "ann", "shop", job.id)
        waiting, _ = jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])
        found = jobs.select_jobs(connection, "shop", most=1000)
        assert [job.id for job in found[:2]] == [waiting.id, job.id]
        assert len(found) == jobs.KEPT + 1
        subscriptions.set_desired(connection, "ann", "shop", Desired.CANCEL)
        assert jobs.get(connection, "shop", waiting.id).state is JobState.CANCELLED
        with pytest.raises(ControlError) as refused:
            jobs.create(connection, "ann", "shop", JobKind.VERIFY, [])
        assert refused.value.code == "TR-8482"
        subscriptions.remove(connection, "ann", "shop")
        subscriptions.create(connection, "ann", "shop", spec("shop"))
        assert jobs.select_jobs(connection, "shop") == []
        assert jobs.select_jobs(connection, "other") == [kept]


def test_servers_report(database: ControlDatabase) -> None:
    server = servers.ServerInfo("s1", "host", 7, "http://127.0.0.1:1", 4, 2, False, "0.1.0")
    with database.begin() as connection:
        servers.seen(connection, server)
        servers.seen(connection, replace(server, running=3))
        (found,) = servers.all_servers(connection)
        assert (found.running, found.alive) == (3, True)
        assert abs(found.seen_us - database.now_us()) < 60_000_000
        servers.gone(connection, "s1")
        assert servers.all_servers(connection) == []


def test_servers_that_begin_at_once_make_one_first_token(database: ControlDatabase) -> None:
    with ThreadPoolExecutor(1) as pool:
        with database.begin() as connection:
            tokens.create(connection, "s1", tokens.FIRST, Scope.ADMIN)
            other = pool.submit(tokens.first_token, database, "s2")
            time.sleep(0.5)  # it has seen that there is none, and waits for this transaction
            assert not other.done()
        try:
            assert other.result() is None
        except TransientControlError as error:
            assert error.code == "TR-8408"  # noqa: PT017 - one of two ways
    assert tokens.first_token(database, "s2") is None


def test_server_that_does_not_answer_in_time_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as accepted:
        host, port = silent.getsockname()
        url = f"postgresql://ann@{host}:{port}/t"
        with closing(ControlDatabase(url)) as never, pytest.raises(TransientControlError) as refused:
            never.now_us()
        accepted.enter_context(silent.accept()[0])
    assert refused.value.code == "TR-8401"
    del refused
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        gc.collect()
    assert not left, [str(one.message) for one in left]


def test_server_of_the_control_plane_waits_for_its_database(tmp_path: Path) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(closing(ControlDatabase(f"sqlite:///{tmp_path}/t.db")))
        database.prepare()
        held = stack.enter_context(closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)))
        held.execute("BEGIN EXCLUSIVE")
        server = ControlServer("s1", database, tmp_path, {}, capacity=1)
        stack.callback(server.close)
        wait_until(lambda: "TR-8401" in server.output(), 60, server.output)
        held.execute("ROLLBACK")
        server.url()
        assert server.end() == 0
