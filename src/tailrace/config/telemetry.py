"""The sections `telemetry` and `lineage` of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tailrace.config.notifications import is_http
from tailrace.config.secret import Secret, refuse_credentials
from tailrace.errors import ConfigError


@dataclass(frozen=True)
class TelemetrySettings:
    """Where spans and metrics go by OpenTelemetry's protocol (OTLP over HTTP).

    OpenTelemetry's variables of the environment (`OTEL_*`) hold for all that is not given here.

    Args:
        endpoint: the receiver's http or https address, without `/v1/traces`; default:
            OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.
        headers: headers of the requests; values may be secret references.
        traces: whether each batch is sent as a span.
        metrics: whether metrics are sent.

    Raises:
        ConfigError: a value is not allowed.
    """

    endpoint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    traces: bool = True
    metrics: bool = True

    #: The extra that brings the packages.
    extra: ClassVar[str] = "otel"

    def __post_init__(self) -> None:
        _require_address(self.endpoint, "telemetry.endpoint")
        if not (self.traces or self.metrics):
            raise ConfigError(
                "section `telemetry` has no effect",
                "found `traces: false` and `metrics: false`",
                "leave the section out, or set one of them",
                code="TR-1011",
            )


@dataclass(frozen=True)
class LineageSettings:
    """Where lineage goes, as events of OpenLineage.

    OpenLineage's own configuration (`openlineage.yml`, `OPENLINEAGE_*` in the environment) holds for all that
    is not given here.

    Args:
        url: the receiver's http or https address; default: the transport that OpenLineage's own
            configuration names.
        api_key: a token for it, as a secret reference.
        namespace: the job's namespace; default: OPENLINEAGE_NAMESPACE, else `default`.

    Raises:
        ConfigError: a value is not allowed.
    """

    url: str | None = None
    api_key: Secret | None = field(default=None, repr=False)
    namespace: str | None = None

    #: The extra that brings the package.
    extra: ClassVar[str] = "openlineage"

    def __post_init__(self) -> None:
        _require_address(self.url, "lineage.url")
        if self.api_key is not None and self.url is None:
            raise ConfigError(
                "`lineage.api-key` has no effect",
                "there is no `lineage.url`",
                "give it, or leave it out: OpenLineage's own configuration holds the key of its transport",
                code="TR-1011",
            )


def _require_address(url: str | None, name: str) -> None:
    refuse_credentials(url, name)
    if url is not None and not is_http(url):
        raise ConfigError(
            f"`{name}` is wrong", "needed: http://HOST:PORT or https://HOST:PORT", code="TR-1010"
        )
