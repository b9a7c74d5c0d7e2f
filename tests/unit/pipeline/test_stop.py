"""A stop between two batches waits for Spark's own note of the last one."""

from __future__ import annotations

from tailrace.pipeline.supervisor import _stop


class IdleQuery:
    """An idle stream: active, and its progress already names the batch that comes next."""

    isActive = True  # noqa: N815

    def __init__(self, gate):
        self.lastProgress = {"batchId": 8}
        self._gate = gate
        self.noted_when_stopped = None

    def stop(self):
        self.noted_when_stopped = self._gate.noted


class Gate:
    """Batch 7 is in the sink; Spark notes it a moment later."""

    written = 7

    def __init__(self, looks):
        self._looks = looks
        self.closed = False
        self.noted = False

    def close(self):
        self.closed = True

    def is_noted(self):
        assert self.closed
        self._looks -= 1
        self.noted = self._looks <= 0
        return self.noted


def test_stop_waits_until_spark_has_noted_the_last_batch():
    gate = Gate(looks=3)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert query.noted_when_stopped is True


def test_stop_does_not_wait_when_the_last_batch_is_noted():
    gate = Gate(looks=1)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert gate.closed
    assert query.noted_when_stopped is True
