"""Messages handed to librdkafka, one call of `rd_kafka_produceva` each. C-like; rules in `kernels.memory`.

A Python call per message makes 0.3 million messages a second at best, this some millions. librdkafka copies
each message, and a call that finds its queue full fails without having done anything: the kernel stops there
and says where, so that its caller can wait and go on.

The job is one block of words, which Python fills in. Keys, values and header values are given by the three
buffers of their Arrow binary arrays, validity, offsets and data, and the number of their first element.

Source: librdkafka `rdkafka.h` (`rd_kafka_vu_t`: a tag of four bytes, at 8 a union of 64 bytes).
"""

from __future__ import annotations

from tailrace.kernels.calls import call1, call3
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld32, ld64, st32, st64

#: Words of a job.
(
    PRODUCE,
    ERROR_CODE,
    ERROR_DESTROY,
    CLIENT,
    TOPIC,
    ROWS,
    NEXT,
    WANTED,
    PARTITIONS,
    KEYS,
    _,
    _,
    KEYS_FIRST,
    VALUES,
    _,
    _,
    VALUES_FIRST,
    HEADER_STARTS,
    HEADER_NAMES,
    HEADER_VALUES,
    _,
    _,
    HEADER_VALUES_FIRST,
    ARGUMENTS,
    TIMESTAMPS,
    JOB,
) = range(26)

#: Bytes of one argument of `rd_kafka_produceva`.
ARGUMENT = 72
#: Arguments of a message without headers.
FIXED_ARGUMENTS = 6

_VTYPE_RKT, _VTYPE_PARTITION, _VTYPE_VALUE, _VTYPE_KEY = 2, 3, 4, 5
_VTYPE_MSGFLAGS, _VTYPE_TIMESTAMP, _VTYPE_HEADER = 7, 8, 9
_F_COPY = 2


@inline
def _bytes(argument, at, tag, buffers, first, i):
    """Put element i of a binary array into an argument, address and length at `at`; False if it is null."""
    validity = ld64(buffers)
    i += first
    if validity != 0 and (ld8(validity + (i >> 3)) >> (i & 7)) & 1 == 0:
        return False
    offsets = ld64(buffers + 8)
    start, end = ld32(offsets + 4 * i), ld32(offsets + 4 * i + 4)
    st32(argument, tag)
    st64(argument + at, ld64(buffers + 16) + start)
    st64(argument + at + 8, end - start)
    return True


@entry("int64(int64)")
def produce(job):
    """Hand over the wanted messages from NEXT on.

    Returns:
        0 when all are handed over; else librdkafka's error code for message NEXT, which is not.
    """
    arguments = ld64(job + 8 * ARGUMENTS)
    wanted, partitions = ld64(job + 8 * WANTED), ld64(job + 8 * PARTITIONS)
    starts, names = ld64(job + 8 * HEADER_STARTS), ld64(job + 8 * HEADER_NAMES)
    timestamps = ld64(job + 8 * TIMESTAMPS)
    st32(arguments, _VTYPE_RKT)
    st64(arguments + 8, ld64(job + 8 * TOPIC))
    st32(arguments + ARGUMENT, _VTYPE_MSGFLAGS)
    st32(arguments + ARGUMENT + 8, _F_COPY)
    st32(arguments + 2 * ARGUMENT, _VTYPE_PARTITION)
    for row in range(ld64(job + 8 * NEXT), ld64(job + 8 * ROWS)):
        if ld8(wanted + row) == 0:
            continue
        st32(arguments + 2 * ARGUMENT + 8, ld32(partitions + 4 * row))
        count = 3
        argument = arguments + 3 * ARGUMENT
        if _bytes(argument, 8, _VTYPE_KEY, job + 8 * KEYS, ld64(job + 8 * KEYS_FIRST), row):
            count += 1
            argument += ARGUMENT
        if _bytes(argument, 8, _VTYPE_VALUE, job + 8 * VALUES, ld64(job + 8 * VALUES_FIRST), row):
            count += 1
            argument += ARGUMENT
        if timestamps != 0:
            # milliseconds; 0 is the time of this call
            st32(argument, _VTYPE_TIMESTAMP)
            st64(argument + 8, ld64(timestamps + 8 * row))
            count += 1
            argument += ARGUMENT
        if starts != 0:
            first, end = ld32(starts + 8 * row), ld32(starts + 8 * row + 4)
            for header in range(first, end):
                given = _bytes(
                    argument,
                    16,
                    _VTYPE_HEADER,
                    job + 8 * HEADER_VALUES,
                    ld64(job + 8 * HEADER_VALUES_FIRST),
                    header,
                )
                if not given:
                    st32(argument, _VTYPE_HEADER)
                    st64(argument + 16, 0)
                    st64(argument + 24, 0)
                st64(argument + 8, ld64(names + 8 * header))
                count += 1
                argument += ARGUMENT
        error = call3(ld64(job + 8 * PRODUCE), ld64(job + 8 * CLIENT), arguments, count)
        if error != 0:
            code = call1(ld64(job + 8 * ERROR_CODE), error)
            call1(ld64(job + 8 * ERROR_DESTROY), error)
            st64(job + 8 * NEXT, row)
            # an enumeration: the upper half of the register may hold anything
            return ((code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    st64(job + 8 * NEXT, ld64(job + 8 * ROWS))
    return 0
