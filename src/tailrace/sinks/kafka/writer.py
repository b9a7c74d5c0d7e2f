"""The tasks of the Kafka sink: each writer writes its share of a batch, in one transaction.

A batch's cells are split by key: all changes of a key, from any cell, go to one writer, in `seq` order. So
many producers may write to one partition, and the changes of a key keep their order in it.

    cells ──cut_cells()──► (writer, seq, cell) ──shuffle, sort──► write_share() ──► topics, marker

If `Share.schemas` names the table schemas that the batch is expected to hold, and the batch holds another
one, all writers are stopped before the first of them has begun: there is a shuffle in between.

`shares` splits the cells, `messages` measures messages, `transactions` holds producers, `reports` is what the
driver receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tailrace.errors import SinkError, of_table
from tailrace.sinks.kafka.failure import FENCED, overdue, sink_error
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.shares import Share
from tailrace.sinks.kafka.transactions import WriterTransaction, open_transaction
from tailrace.sinks.messages.reports import failed_report
from tailrace.sinks.messages.turns import Turns


def write_share(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of SHARES to Kafka, each writer's in order and in one transaction; a row of REPORT for each.

    A failure is reported, not raised: Spark would retry the task at once.

    Raises:
        SinkError: a newer producer has taken over.
    """
    turns = Turns(lambda writer: open_transaction(share, writer))
    try:
        yield from turns.write(batches)
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
