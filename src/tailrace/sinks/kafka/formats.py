"""Which format writes messages for which settings."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.model import KafkaSettings
from tailrace.formats.base import NO_IDS, MessageFormat, SchemaIds, SchemaText
from tailrace.formats.debezium import DebeziumFormat
from tailrace.formats.modes import Modes
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema


def message_format(settings: KafkaSettings, connector: str) -> MessageFormat:
    """The format that `settings` ask for.

    Args:
        settings: the sink's.
        connector: Debezium's name of the source's kind.
    """
    modes = Modes(
        settings.decimal_handling_mode,
        settings.time_precision_mode,
        settings.bigint_unsigned_handling_mode,
        settings.binary_handling_mode,
    )
    return DebeziumJson(
        DebeziumFormat(settings.topic_prefix, settings.schemas_enable, connector, modes=modes)
    )


@dataclass(frozen=True)
class DebeziumJson:
    """Keys and values in JSON, both written in one go.

    Args:
        form: how.
    """

    form: DebeziumFormat

    def topic(self, table: TableId) -> str:
        """See MessageFormat."""
        return self.form.topic(table)

    def schemas(self, table: TableSchema) -> tuple[SchemaText, ...]:  # noqa: ARG002 - JSON needs none
        """See MessageFormat."""
        return ()

    def messages(
        self,
        batch: ChangeBatch,
        now_ms: int,
        ids: SchemaIds = NO_IDS,  # noqa: ARG002 - JSON needs none
    ) -> pa.RecordBatch:
        """See MessageFormat."""
        return self.form.to_messages(batch, now_ms)
