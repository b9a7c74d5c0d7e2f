"""What several types of sink have among their settings (`config.sinks`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.config.options import MODES
from tailrace.config.secret import shown
from tailrace.errors import ConfigError

#: How many rows of a table may be in quarantine, by default.
MOST_QUARANTINED = 1000


class RefusedRow(StrEnum):
    """How a row is handled that a target refuses."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class OnError(StrEnum):
    """What becomes of a pipeline when one of its sinks cannot go on."""

    FAIL = "fail"
    PARK = "park"


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """What every type of sink has.

    Args:
        name: names the sink among those of its pipeline; default: its type, numbered from the second on.
        on_error: whether an error of the sink ends the pipeline, or parks the sink while the others go on.
    """

    name: str = ""
    on_error: OnError = OnError.FAIL

    @property
    def follows_former_columns(self) -> bool:
        """Whether targets rename and drop columns with their source."""
        return False

    @property
    def takes_any_order(self) -> bool:
        """Whether the sink has no more work if several tasks have the changes of a key."""
        return False


@dataclass(frozen=True, kw_only=True)
class MessageSettings(CommonSettings):
    """What every type of sink has that writes messages: the form of their values.

    Args:
        decimal_handling_mode: Debezium's `decimal.handling.mode`.
        time_precision_mode: Debezium's `time.precision.mode`.
        bigint_unsigned_handling_mode: Debezium's `bigint.unsigned.handling.mode`.
        binary_handling_mode: Debezium's `binary.handling.mode`.
        enable_time_adjuster: Debezium's `enable.time.adjuster` (true there).
    """

    decimal_handling_mode: str = MODES["decimal.handling.mode"][0]
    time_precision_mode: str = MODES["time.precision.mode"][0]
    bigint_unsigned_handling_mode: str = MODES["bigint.unsigned.handling.mode"][0]
    binary_handling_mode: str = MODES["binary.handling.mode"][0]
    enable_time_adjuster: bool = False

    def check_modes(self) -> None:
        """Check the values that modes have.

        Raises:
            ConfigError: one is not allowed.
        """
        for mode, allowed in MODES.items():
            name = mode.replace(".", "_")
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"unknown value {shown(getattr(self, name))} at `sink.{name.replace('_', '-')}`",
                    f"allowed: {', '.join(allowed)}",
                    code="TR-1008",
                )


class MessageValue(StrEnum):
    """How values become bytes, where there is no schema registry."""

    DEBEZIUM_JSON = "debezium-json"
    CANAL_JSON = "canal-json"


@dataclass(frozen=True, kw_only=True)
class JsonMessageSettings(MessageSettings):
    """What sinks have that write messages in JSON to systems other than Kafka.

    Args:
        topic_prefix: Debezium's `topic.prefix`: names the stream in messages, begins the names of targets.
        value_format: how values are encoded: as Debezium does, or as Canal's flat messages.
        schemas_enable: whether Debezium's JSON carries its Connect schema.
        parallelism: writers, each with a connection of its own; default: as many as Spark has cores.

    Raises:
        ConfigError: a value is not allowed.
    """

    topic_prefix: str
    value_format: MessageValue = MessageValue.DEBEZIUM_JSON
    schemas_enable: bool = False
    parallelism: int | None = None

    def __post_init__(self) -> None:
        self.check_modes()
        check_positive(self, "parallelism")
        if self.schemas_enable and self.value_format is not MessageValue.DEBEZIUM_JSON:
            raise ConfigError(
                f"`sink.schemas-enable` must be false with `value-format: {self.value_format.value}`",
                "Canal's messages have no Connect schema",
                "remove the setting, or set value-format: debezium-json",
                code="TR-1010",
            )


def check_positive(settings: object, *names: str) -> None:
    """Check that the values of settings are positive.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise ConfigError(
                f"`sink.{name.replace('_', '-')}` must be > 0", f"found {value}", code="TR-1010"
            )
