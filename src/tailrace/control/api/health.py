"""Whether the server answers, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select

from tailrace.control.api.access import Controlled, Reader
from tailrace.control.api.problems import responses
from tailrace.control.leases import unowned
from tailrace.control.metadata.database import now_us
from tailrace.control.metadata.tables import progress, subscriptions
from tailrace.control.servers import all_servers
from tailrace.control.stages import Stage
from tailrace.control.subscriptions import count_by_stage

router = APIRouter(tags=["health"])
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Whether the server runs."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: responses()[503]})
def readyz(control: Controlled) -> dict[str, str]:
    """Whether its database answers."""
    control.database.now_us()
    return {"status": "ok"}


@router.get("/metrics", responses=responses(), response_class=Response)
def metrics(control: Controlled, _: Reader) -> Response:
    """Metrics of the control plane; those of pipelines are where `pipeline.metrics` says."""
    registry = CollectorRegistry()
    registry.register(control.database.read(_Found))
    return Response(generate_latest(registry), media_type=_TYPE)


class _Found(Collector):
    """What the database says, read at once."""

    def __init__(self, connection: Connection) -> None:
        self._stages = count_by_stage(connection)
        self._unowned = unowned(connection)
        self._servers = all_servers(connection)
        of, table = subscriptions.c, progress.c
        lag = now_us() - func.min(table.complete_us)
        joined = subscriptions.join(progress, of.id == table.subscription_id)
        query = select(of.name, lag.label("lag_us"), func.sum(table.changes).label("changes"))
        self._streams = connection.execute(query.select_from(joined).group_by(of.name)).all()

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        stages = GaugeMetricFamily("tailrace_subscriptions", "Subscriptions in a stage.", labels=["stage"])
        for stage in Stage:
            stages.add_metric([stage], self._stages.get(stage, 0))
        yield stages
        yield GaugeMetricFamily(
            "tailrace_subscriptions_unowned", "Subscriptions to run that no server runs.", self._unowned
        )
        running = GaugeMetricFamily(
            "tailrace_server_running", "Subscriptions of a server.", labels=["server"]
        )
        capacity = GaugeMetricFamily(
            "tailrace_server_capacity", "Subscriptions that a server may run.", labels=["server"]
        )
        alive = GaugeMetricFamily("tailrace_server_up", "Whether a server reports.", labels=["server"])
        for server in self._servers:
            running.add_metric([server.name], server.running)
            capacity.add_metric([server.name], server.capacity)
            alive.add_metric([server.name], server.alive)
        yield from (running, capacity, alive)
        lag = GaugeMetricFamily(
            "tailrace_subscription_lag_seconds",
            "Age of the time up to which all targets of a subscription are complete.",
            labels=["subscription"],
        )
        changes = GaugeMetricFamily(
            "tailrace_subscription_changes", "Changes written by a subscription.", labels=["subscription"]
        )
        for row in self._streams:
            if row.lag_us is not None:
                lag.add_metric([row.name], max(0.0, int(row.lag_us) / 1e6))
            changes.add_metric([row.name], int(row.changes))
        yield from (lag, changes)
