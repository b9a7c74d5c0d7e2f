"""A model of subscriptions and leases against the real statements, in random order.

The model knows for each subscription who may run it. Whatever servers, users and time do: at most one may,
numbers of leases rise, what an owner of the past says changes nothing, and stages move forward only.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import update

from tailrace.control import leases, progress, subscriptions
from tailrace.control.leases import Lease
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.metadata.tables import subscriptions as table
from tailrace.control.stages import WAY, Desired, Stage
from tailrace.control.subscriptions import SubscriptionFilter
from tailrace.errors import ControlError, LeaseLostError, SinkError, StateError
from tests.support.control import spec

SERVERS = ("s1", "s2", "s3")
NAMES = ("a", "b", "c")


@dataclass
class Model:
    owner: Lease | None = None
    number: int = 0
    desired: Desired = Desired.RUN
    reached: Stage = Stage.REGISTER
    failed: bool = False
    waits: bool = False
    begun: int = -1
    past: list[Lease] = field(default_factory=list)


class ControlPlane(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.database = ControlDatabase(f"sqlite:///{self.directory}/tailrace.db")
        self.models: dict[str, Model] = {}

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.directory)

    @initialize()
    def prepare(self) -> None:
        self.database.prepare()
        with self.database.begin() as connection:
            for name in NAMES:
                subscriptions.create(connection, "ann", name, spec(name))
                self.models[name] = Model()

    @rule(server=st.sampled_from(SERVERS), most=st.integers(1, 3))
    def claim(self, server: str, most: int) -> None:
        free = {
            name
            for name, model in self.models.items()
            if model.owner is None and model.desired is Desired.RUN and not model.waits
        }
        with self.database.begin() as connection:
            taken = [lease for _, lease in leases.claim(connection, server, leases.Room(most))]
        assert {lease.name for lease in taken} <= free
        assert len(taken) == min(most, len(free))
        for lease in taken:
            model = self.models[lease.name]
            assert lease.number == model.number + 1
            model.owner, model.number = lease, lease.number

    @rule(name=st.sampled_from(NAMES))
    def time_passes(self, name: str) -> None:
        """The lease of a server that does not renew it ends."""
        model = self.models[name]
        with self.database.begin() as connection:
            connection.execute(update(table).where(table.c.name == name).values(lease_until_us=now_us() - 1))
        if model.owner is not None:
            model.past.append(model.owner)
            model.owner = None

    @rule(name=st.sampled_from(NAMES))
    def pause_passes(self, name: str) -> None:
        with self.database.begin() as connection:
            connection.execute(update(table).where(table.c.name == name).values(retry_us=None))
        self.models[name].waits = False

    @rule(name=st.sampled_from(NAMES))
    def renew_and_release(self, name: str) -> None:
        model = self.models[name]
        with self.database.begin() as connection:
            assert leases.renew(connection, model.past) == set(model.past)
            if model.owner is not None:
                assert leases.renew(connection, [model.owner]) == set()
                leases.release(connection, model.owner)
        if model.owner is not None:
            model.past.append(model.owner)
            model.owner = None

    @rule(name=st.sampled_from(NAMES), stage=st.sampled_from(WAY))
    def batch(self, name: str, stage: Stage) -> None:
        model = self.models[name]
        if model.owner is None or model.desired is Desired.CANCEL:
            return
        with self.database.begin() as connection:
            number = model.begun + 1
            leases.begin_batch(connection, model.owner, "", number, str(number))
            leases.end_batch(connection, model.owner, "", number)
            progress.report(connection, model.owner, stage, [])
        model.begun = number
        model.reached = max(model.reached, stage, key=WAY.index)
        model.failed = False

    @rule(name=st.sampled_from(NAMES), retries=st.booleans())
    def fails(self, name: str, retries: bool) -> None:
        model = self.models[name]
        if model.owner is None or model.desired is Desired.CANCEL:
            return
        with self.database.begin() as connection:
            progress.failed(connection, model.owner, SinkError("no", code="TR-7008"), retries=retries)
        model.past.append(model.owner)
        model.owner = None
        if retries:
            model.waits = True
        else:
            model.failed, model.desired = True, Desired.PAUSE

    @rule(name=st.sampled_from(NAMES))
    def zombie(self, name: str) -> None:
        """What a former owner does has no effect."""
        for lease in self.models[name].past:
            for act in (
                lambda c, lease=lease: leases.begin_batch(c, lease, "", 99, "{}"),
                lambda c, lease=lease: leases.end_batch(c, lease, "", self.models[name].begun),
                lambda c, lease=lease: progress.report(c, lease, Stage.INCREMENTAL_LOG, []),
            ):
                with self.database.begin() as connection:
                    try:
                        act(connection)
                    except LeaseLostError:
                        continue
                    raise AssertionError(f"{lease} acted")

    @rule(name=st.sampled_from(NAMES), desired=st.sampled_from([Desired.RUN, Desired.PAUSE]))
    def user(self, name: str, desired: Desired) -> None:
        model = self.models[name]
        with self.database.begin() as connection, suppress(StateError):
            subscriptions.set_desired(connection, "ann", name, desired)
            model.desired = desired

    @rule(name=st.sampled_from(NAMES))
    def retry(self, name: str) -> None:
        model = self.models[name]
        with self.database.begin() as connection:
            try:
                subscriptions.retry(connection, "ann", name)
            except StateError:
                assert not model.failed
                return
        assert model.failed or (model.waits and model.owner is None)
        model.failed, model.desired, model.waits = False, Desired.RUN, False

    @rule()
    def cancel(self) -> None:
        model = self.models["c"]
        with self.database.begin() as connection:
            subscriptions.set_desired(connection, "ann", "c", Desired.CANCEL)
        model.desired, model.failed = Desired.CANCEL, False

    @rule(name=st.sampled_from(NAMES))
    def remove_while_it_runs(self, name: str) -> None:
        if self.models[name].owner is None:
            return
        with self.database.begin() as connection, suppress(ControlError):
            subscriptions.remove(connection, "ann", name)
            raise AssertionError("removed")

    @invariant()
    def database_is_the_model(self) -> None:
        if not self.models:
            return
        for found in self.database.read(
            lambda c: subscriptions.select_subscriptions(c, SubscriptionFilter())
        ):
            model = self.models[found.name]
            stage = (
                Stage.CANCELLED
                if model.desired is Desired.CANCEL
                else Stage.FAILED
                if model.failed
                else model.reached
            )
            assert (found.lease, found.desired, found.stage) == (model.number, model.desired, stage)
            assert found.reached is model.reached
            if model.owner is not None:
                assert found.owner == model.owner.server


TestControlPlane = ControlPlane.TestCase
TestControlPlane.settings = settings(max_examples=12, stateful_step_count=40, deadline=None)
