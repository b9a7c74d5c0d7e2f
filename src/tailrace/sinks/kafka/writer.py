"""The tasks of the Kafka sink: each writer writes its share of a batch, in one transaction.

A batch's cells are split by key: all changes of a key, from any cell, go to one writer, in `seq` order. So
many producers may write to one partition, and the changes of a key keep their order in it.

    cells ──cut_cells()──► (writer, seq, cell) ──shuffle, sort──► write_share() ──► topics, marker

A batch that one task reads needs neither: it is in order, and one writer writes it while it is read.

    cells ──whole_batch()──► write_share() ──► topics, marker

If `Share.schemas` names the table schemas that the batch is expected to hold, and the batch holds another
one, all writers are stopped before the first of them has begun, as there is a shuffle in between; the one
that has no shuffle before it gives up its transaction.

`shares` splits the cells, `messages` measures messages, `transactions` holds producers, `reports` is what the
driver receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tailrace.errors import SinkError, of_table
from tailrace.model.change import ChangeBatch
from tailrace.sinks.kafka.failure import FENCED, overdue, sink_error
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.shares import Share
from tailrace.sinks.kafka.transactions import WriterTransaction, open_transaction
from tailrace.sinks.messages.reports import failed_report
from tailrace.sinks.messages.turns import Turns


def write_share(
    share: Share, changes: Iterable[tuple[int, ChangeBatch | None]], *, first: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Write changes to Kafka, each writer's in order and in one transaction; a row of REPORT for each.

    A failure is reported, not raised: Spark would retry the task at once.

    Args:
        share: the batch's settings.
        changes: as `Turns.write` takes them.
        first: the writer that has the first turn: it begins while its changes are read; None: unknown.

    Raises:
        SinkError: a newer producer has taken over.
    """
    turns = Turns(lambda writer: open_transaction(share, writer))
    try:
        if first is not None:
            turns.begin(first)
        yield from turns.write(changes)
        _drop(turns.present)  # it was stopped
    except KafkaError as error:
        _drop(turns.present)
        failure = _of_topic(share, error)
        limit_s = share.client.transaction_s
        if turns.present is not None and turns.present.lasted_s > limit_s and failure.retryable:
            failure = overdue(limit_s, error.name, error.text)
        elif error.name in FENCED:
            # Spark may have abandoned this attempt: raise instead of reporting.
            raise failure from error
        yield failed_report(failure)
    except SinkError as error:
        _drop(turns.present)
        yield failed_report(error)
    except BaseException:
        _drop(turns.present)
        raise


def _of_topic(share: Share, error: KafkaError) -> SinkError:
    """An error of Kafka, with the table if its topic is that of one."""
    failure = sink_error(error.name, error.text, error.topic)
    tables = [table for table, topic in share.topics.items() if topic.name == error.topic]
    return of_table(failure, tables[0]) if len(tables) == 1 else failure


def _drop(transaction: WriterTransaction | None) -> None:
    if transaction is not None:
        transaction.drop()
