"""librdkafka's producer through ctypes: its public C interface, in the library bundled with confluent-kafka.

confluent-kafka's own producer needs one Python call per message, and takes no headers in bulk. This one takes
Arrow arrays (`kernels.produce`). Everything else uses confluent-kafka.

The bundled library's location is private to confluent-kafka's wheels: `library_path` finds it, and
`pyproject.toml` bounds the version.

A producer is used by one thread. Its callbacks run only while that thread is in `poll`, `flush` or `commit`.

Source: librdkafka `rdkafka.h`, and its INTRODUCTION.md on transactional producers.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa

from tailrace.config.secret import hidden
from tailrace.errors import ConfigError
from tailrace.sinks.kafka.kernels import produce as kernel

_PRODUCER = 0
_CONF_OK = 0
_QUEUE_FULL = -184
_TIMED_OUT = -185
_POLL_MS = 100
#: How long a call may wait at a time, milliseconds.
_CALL_MS = 1000
#: Flags of `rd_kafka_purge`: messages in the queue, and messages sent but not acknowledged.
_PURGE_QUEUE, _PURGE_INFLIGHT = 1, 2

_ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_ReportCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

#: Name: type of the result, types of the arguments.
_FUNCTIONS: Mapping[str, tuple[Any, list[Any]]] = {
    "conf_new": (ctypes.c_void_p, []),
    "conf_destroy": (None, [ctypes.c_void_p]),
    "conf_set": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "conf_set_error_cb": (None, [ctypes.c_void_p, _ErrorCallback]),
    "conf_set_dr_msg_cb": (None, [ctypes.c_void_p, _ReportCallback]),
    "new": (ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
    "destroy": (None, [ctypes.c_void_p]),
    "poll": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "flush": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "purge": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "outq_len": (ctypes.c_int, [ctypes.c_void_p]),
    "topic_new": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
    "topic_destroy": (None, [ctypes.c_void_p]),
    "topic_name": (ctypes.c_char_p, [ctypes.c_void_p]),
    "last_error": (ctypes.c_int, []),
    "err2name": (ctypes.c_char_p, [ctypes.c_int]),
    "err2str": (ctypes.c_char_p, [ctypes.c_int]),
    "init_transactions": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "begin_transaction": (ctypes.c_void_p, [ctypes.c_void_p]),
    "commit_transaction": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "abort_transaction": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "error_code": (ctypes.c_int, [ctypes.c_void_p]),
    "error_string": (ctypes.c_char_p, [ctypes.c_void_p]),
    "error_is_retriable": (ctypes.c_int, [ctypes.c_void_p]),
    "error_destroy": (None, [ctypes.c_void_p]),
    "fatal_error": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
}


class KafkaError(Exception):
    """An error of librdkafka.

    Args:
        code: its code.
        name: the code's name, e.g. `_TRANSPORT`.
        text: its text.
        topic: the topic concerned, None: no topic.
    """

    def __init__(self, code: int, name: str, text: str, topic: str | None = None) -> None:
        super().__init__(code, name, text, topic)
        self.code = code
        self.name = name
        self.text = text
        self.topic = topic


class _Message(ctypes.Structure):
    """The first fields of `rd_kafka_message_t`."""

    _fields_ = (("err", ctypes.c_int), ("topic", ctypes.c_void_p))


@cache
def _library() -> Any:
    library = ctypes.CDLL(str(library_path(Path(confluent_kafka.__file__).parent)))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def library_path(package: Path) -> Path | str:
    """The librdkafka that confluent-kafka uses: in its wheel, or the system's if it was built from source.

    Args:
        package: the directory of the installed package `confluent_kafka`.

    Raises:
        ConfigError: there is none.
    """
    # where auditwheel (Linux) and delocate (macOS) put a wheel's libraries
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        for library in folder.glob("librdkafka*"):
            return library
    found = ctypes.util.find_library("rdkafka")
    if found is None:
        raise ConfigError(
            "librdkafka was not found",
            "confluent-kafka is installed without it",
            "pip install 'tailrace[kafka]'",
            code="TR-1203",
        )
    return found


class _StallTimer:
    """A timeout that restarts with every message queued or delivered: brokers may be slow, by a quota.

    Args:
        waiting: the number of messages that still wait.
        timeout_s: longest time without progress, seconds.
    """

    def __init__(self, waiting: Callable[[], int], timeout_s: float) -> None:
        self._waiting = waiting
        self._timeout_s = timeout_s
        self._left = waiting()
        self._deadline = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left."""
        left = self._waiting()
        if left < self._left:
            self._left, self._deadline = left, time.monotonic() + self._timeout_s
        return self._deadline - time.monotonic()


class Producer:
    """A producer of a Kafka cluster.

    Args:
        settings: librdkafka's configuration.

    Raises:
        KafkaError: a setting is unknown or wrong.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._topics: dict[str, int] = {}
        #: The first message that could not be delivered since the last `begin` or `deliver`.
        self._lost: KafkaError | None = None
        #: The last error of its connections.
        self.connection_error: KafkaError | None = None
        # librdkafka holds only their addresses
        self._callbacks = _ErrorCallback(self._on_error), _ReportCallback(self._on_report)
        library = _library()
        text = ctypes.create_string_buffer(512)
        conf = library.rd_kafka_conf_new()
        for name, value in settings.items():
            code = library.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, len(text))
            if code != _CONF_OK:
                library.rd_kafka_conf_destroy(conf)
                reason = text.value.decode(errors="replace")
                raise KafkaError(code, "_INVALID_ARG", hidden(reason, settings.values()))
        library.rd_kafka_conf_set_error_cb(conf, self._callbacks[0])
        library.rd_kafka_conf_set_dr_msg_cb(conf, self._callbacks[1])
        self._client = library.rd_kafka_new(_PRODUCER, conf, text, len(text))
        if not self._client:
            library.rd_kafka_conf_destroy(conf)
            reason = text.value.decode(errors="replace")
            raise KafkaError(-186, "_INVALID_ARG", hidden(reason, settings.values()))

    def init_transactions(self, timeout_s: float) -> None:
        """Become the only producer of the transactional id; aborts the previous one's transaction."""
        self._until(lambda ms: _library().rd_kafka_init_transactions(self._client, ms), timeout_s)

    def begin(self) -> None:
        """Begin a transaction."""
        self._lost = None
        self._check(_library().rd_kafka_begin_transaction(self._client))

    def commit(self, timeout_s: float) -> None:
        """Send the queued messages and commit.

        Args:
            timeout_s: longest time without any message delivered, seconds.

        Raises:
            KafkaError: a message was rejected, another producer has taken over, or there is no progress.
        """
        self._until(lambda ms: _library().rd_kafka_commit_transaction(self._client, ms), timeout_s)

    def produce(self, topic: str, messages: MessageColumns, timeout_s: float) -> None:
        """Queue messages; wait for room in the queue.

        Args:
            topic: the topic's name.
            messages: the messages.
            timeout_s: longest time without any room, seconds.

        Raises:
            KafkaError: a message was rejected, or there was no room for too long.
        """
        job = messages.job()
        library = _library()
        job[kernel.PRODUCE] = _address(library.rd_kafka_produceva)
        job[kernel.ERROR_CODE] = _address(library.rd_kafka_error_code)
        job[kernel.ERROR_DESTROY] = _address(library.rd_kafka_error_destroy)
        job[kernel.CLIENT], job[kernel.TOPIC] = self._client, self._topic(topic)
        timer = _StallTimer(lambda: int(job[kernel.ROWS] - job[kernel.NEXT]), timeout_s)
        while code := kernel.produce(job.ctypes.data):
            if code != _QUEUE_FULL:
                raise self._reason(_error(code, topic=topic))
            library.rd_kafka_poll(self._client, _POLL_MS)
            self._raise_lost()
            if timer.left_s() <= 0:
                raise self.connection_error or _error(_TIMED_OUT, topic=topic)
        library.rd_kafka_poll(self._client, 0)
        self._raise_lost()

    def deliver(self, timeout_s: float) -> None:
        """Wait until all messages are delivered; for producers without transactions.

        Args:
            timeout_s: longest time without any message delivered, seconds.

        Raises:
            KafkaError: a message was not delivered.
        """
        timer = _StallTimer(self._waiting, timeout_s)
        while code := _library().rd_kafka_flush(self._client, _CALL_MS):
            if timer.left_s() <= 0 or self._is_hopeless():
                break
        try:
            self._raise_lost()
        finally:
            self._lost = None
        if code:
            raise self.connection_error or _error(code)

    def close(self) -> None:
        """Drop the queued messages, without telling the broker, and free the producer."""
        library = _library()
        library.rd_kafka_purge(self._client, _PURGE_QUEUE | _PURGE_INFLIGHT)
        library.rd_kafka_poll(self._client, 0)
        for handle in self._topics.values():
            library.rd_kafka_topic_destroy(handle)
        library.rd_kafka_destroy(self._client)
        self._client = None

    def _topic(self, name: str) -> int:
        handle = self._topics.get(name)
        if handle is None:
            handle = _library().rd_kafka_topic_new(self._client, name.encode(), None)
            if not handle:
                raise _error(_library().rd_kafka_last_error(), topic=name)
            self._topics[name] = handle
        return handle

    def _until(self, call: Any, timeout_s: float) -> None:
        """Repeat `call`, which takes a timeout in milliseconds, while its error is retriable."""
        timer = _StallTimer(self._waiting, timeout_s)
        while error := call(_CALL_MS):
            library = _library()
            retriable = library.rd_kafka_error_is_retriable(error)
            if retriable and timer.left_s() > 0 and not self._is_hopeless():
                library.rd_kafka_error_destroy(error)
                library.rd_kafka_poll(self._client, 0)
                continue
            self._check(error)

    def _waiting(self) -> int:
        """The number of messages not delivered yet."""
        return int(_library().rd_kafka_outq_len(self._client))

    def _is_hopeless(self) -> bool:
        """Whether the connections fail for a permanent reason."""
        return self.connection_error is not None and self.connection_error.name in HOPELESS

    def _check(self, error: int | None) -> None:
        if not error:
            return
        library = _library()
        code, text = library.rd_kafka_error_code(error), library.rd_kafka_error_string(error).decode()
        retriable = library.rd_kafka_error_is_retriable(error)
        library.rd_kafka_error_destroy(error)
        library.rd_kafka_poll(self._client, 0)
        if retriable and self.connection_error is not None:
            raise self.connection_error
        raise self._reason(_error(code, text))

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._reason(self._lost)

    def _reason(self, found: KafkaError) -> KafkaError:
        """Why there is an error `found`: what ended the producer, else the first message lost, else itself.

        librdkafka drops all messages of a producer that has ended, which says nothing.
        """
        text = ctypes.create_string_buffer(512)
        if code := _library().rd_kafka_fatal_error(self._client, text, len(text)):
            return _error(code, text.value.decode(errors="replace"))
        return self._lost or found

    def _on_error(self, _client: int, code: int, text: bytes, _opaque: int) -> None:
        name = _name(code)
        if name != "_ALL_BROKERS_DOWN" or self.connection_error is None:
            self.connection_error = KafkaError(code, name, text.decode(errors="replace"))

    def _on_report(self, _client: int, message: int, _opaque: int) -> None:
        report = _Message.from_address(message)
        if report.err and self._lost is None:
            self._lost = _error(report.err, topic=_library().rd_kafka_topic_name(report.topic).decode())


#: Errors of connections that are permanent.
HOPELESS = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})


def _name(code: int) -> str:
    name: bytes = _library().rd_kafka_err2name(code)
    return name.decode()


def _error(code: int, text: str | None = None, topic: str | None = None) -> KafkaError:
    default: bytes = _library().rd_kafka_err2str(code)
    return KafkaError(code, _name(code), text or default.decode(), topic)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class MessageColumns:
    """Messages of one topic, as columns.

    Args:
        keys: binary; null: no key.
        values: binary; null: no value.
        headers: list of (key, value) structs, or None.
        partitions: int32.
        selected: uint8; 0 leaves a message out.
        timestamps: int64, milliseconds since 1970 UTC; 0, and None for all: when it is handed over.
    """

    def __init__(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        headers: pa.ListArray | None,
        partitions: np.ndarray,
        selected: np.ndarray,
        *,
        timestamps: np.ndarray | None = None,
    ) -> None:
        self._keys = keys
        self._values = values
        self._headers = headers if headers is not None and headers.null_count < len(headers) else None
        self._partitions = partitions
        self._selected = selected
        self._timestamps = timestamps
        self._kept: list[Any] = []

    def job(self) -> np.ndarray:
        """The kernel's job; valid as long as this object exists."""
        job = np.zeros(kernel.JOB, np.int64)
        job[kernel.ROWS] = len(self._values)
        job[kernel.WANTED] = self._selected.ctypes.data
        job[kernel.PARTITIONS] = self._partitions.ctypes.data
        job[kernel.KEYS : kernel.KEYS_FIRST + 1] = _buffers(self._keys)
        job[kernel.VALUES : kernel.VALUES_FIRST + 1] = _buffers(self._values)
        if self._timestamps is not None:
            job[kernel.TIMESTAMPS] = self._timestamps.ctypes.data
        most_headers = 0
        if self._headers is not None:
            most_headers = self._put_headers(job, self._headers)
        arguments = np.zeros((kernel.FIXED_ARGUMENTS + most_headers, kernel.ARGUMENT), np.uint8)
        job[kernel.ARGUMENTS] = arguments.ctypes.data
        self._kept.append(arguments)
        return job

    def _put_headers(self, job: np.ndarray, headers: pa.ListArray) -> int:
        """Fill in the headers; the most headers of one message."""
        entries = headers.values
        names = entries.field(0).dictionary_encode()
        pool, starts = bytearray(), []
        for name in names.dictionary.to_pylist():
            starts.append(len(pool))
            pool += name.encode() + b"\0"
        texts = np.frombuffer(bytes(pool), np.uint8)
        addresses = (np.array(starts, np.int64) + texts.ctypes.data)[names.indices.to_numpy()]
        lengths = headers.value_lengths().fill_null(0).to_numpy()
        # A null list may hide entries of the array below.
        starts_of = np.zeros((len(headers), 2), np.int32)
        starts_of[:, 0] = headers.offsets.to_numpy()[:-1]
        starts_of[:, 1] = starts_of[:, 0] + lengths
        job[kernel.HEADER_STARTS] = starts_of.ctypes.data
        job[kernel.HEADER_NAMES] = addresses.ctypes.data
        values = entries.field(1)
        job[kernel.HEADER_VALUES : kernel.HEADER_VALUES_FIRST + 1] = _buffers(values)
        self._kept += [texts, addresses, starts_of, values]
        return int(lengths.max(initial=0))


#: Data buffer for a binary array without one.
_NO_DATA = np.zeros(1, np.uint8)


def _buffers(array: pa.BinaryArray) -> tuple[int, int, int, int]:
    """Addresses of a binary array's buffers, and the index of its first element."""
    validity, offsets, data = array.buffers()
    return (
        0 if validity is None or array.null_count == 0 else validity.address,
        offsets.address,
        _NO_DATA.ctypes.data if data is None or data.size == 0 else data.address,
        array.offset,
    )
