"""How signals and notifications reach Kafka: by their own settings, or those of the Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.kafka import KafkaSettings
from tailrace.config.model import Pipeline
from tailrace.config.secret import resolve_all
from tailrace.errors import ConfigError
from tailrace.extras import require


def kafka_settings(
    pipeline: Pipeline, section: str, servers: str | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """The settings of a client of librdkafka.

    Args:
        pipeline: the pipeline.
        section: the section that asks for it, for errors.
        servers: its `bootstrap-servers`, if it has any.
        properties: its `properties`.

    Raises:
        ConfigError: no brokers are named, a secret cannot be resolved, or the extra is missing.
    """
    require("kafka", f"section `{section}`")
    where = section
    if servers is None:
        sink = next((sink for sink in pipeline.sinks if isinstance(sink, KafkaSettings)), None)
        if sink is None:
            raise ConfigError(
                f"`{section}.bootstrap-servers` is missing",
                "the pipeline has no Kafka sink whose brokers it could use",
                "name them: bootstrap-servers: HOST:PORT",
                code="TR-1006",
            )
        servers, properties, where = sink.bootstrap_servers, {**sink.properties, **properties}, "sink"
    given = resolve_all(properties, f"{where}.properties")
    return {"client.id": "tailrace", "log_level": "0", "bootstrap.servers": servers, **given}
