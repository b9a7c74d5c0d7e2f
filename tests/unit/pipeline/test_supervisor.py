"""A stop between two batches waits for Spark's own record of the last one."""

from __future__ import annotations

from tailrace.pipeline.supervisor import _stop


class IdleQuery:
    """An idle stream: active, and its progress already names the batch that comes next."""

    isActive = True  # noqa: N815

    def __init__(self, gate):
        self.lastProgress = {"batchId": 8}
        self._gate = gate
        self.recorded_when_stopped = None

    def stop(self):
        self.recorded_when_stopped = self._gate.recorded


class Gate:
    """Batch 7 is in the sink; Spark records it a moment later."""

    written = 7

    def __init__(self, looks):
        self._looks = looks
        self.closed = False
        self.recorded = False

    def close(self):
        self.closed = True

    def is_recorded(self):
        assert self.closed
        self._looks -= 1
        self.recorded = self._looks <= 0
        return self.recorded


def test_stop_waits_until_spark_has_noted_the_last_batch():
    gate = Gate(looks=3)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert query.recorded_when_stopped is True


def test_stop_does_not_wait_when_the_last_batch_is_recorded():
    gate = Gate(looks=1)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert gate.closed
    assert query.recorded_when_stopped is True
