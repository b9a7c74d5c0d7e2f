"""A replica that answers late: with lossless semi-synchronous replication, logged commits wait for it."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time

from tests.support.wait import wait_until

_MAGIC = 0xEF


class SlowReplica:
    """Acknowledges each transaction of a MariaDB server `delay_s` after it was sent.

    Until then the transaction is in the log, sent to all replicas, and invisible to SELECTs.
    """

    def __init__(self, server, delay_s: float) -> None:
        self._server, self._delay_s = server, delay_s
        self._id = random.randrange(1 << 20, 1 << 30)
        self._settings = {
            "rpl_semi_sync_master_enabled": "ON",
            "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
            "rpl_semi_sync_master_timeout": "10000",
        }

    def __enter__(self) -> SlowReplica:
        server = self._server
        self._before = dict(server.execute("SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_master_%'"))
        server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in self._settings.items()))
        self._connection = connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, pos = cursor.fetchone()[:2]
            cursor.execute(
                "SET @mariadb_slave_capability = 4, @rpl_semi_sync_slave = 1,"
                " @master_binlog_checksum = 'CRC32'"
            )
        connection._execute_command(0x15, struct.pack("<IBBBHII", self._id, 0, 0, 0, 0, 0, 0))
        connection._read_ok_packet()
        connection._execute_command(0x12, struct.pack("<IHI", pos, 2, self._id) + file.encode())
        self._file = file
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(
            lambda: self._status() == {"clients": "1", "status": "ON"}, 10, lambda: str(self._status())
        )
        return self

    def _status(self) -> dict[str, str]:
        rows = self._server.execute("SHOW STATUS LIKE 'rpl_semi_sync_master_%'")
        found = {name.rpartition("_")[2]: value for name, value in rows}
        return {name: found[name] for name in ("clients", "status")}

    def __exit__(self, *_: object) -> None:
        self._connection._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.execute(
            *(
                f"SET GLOBAL {name} = {self._before[name]}"
                for name in self._settings
                if name.endswith("enabled")
            )
        )

    def _run(self) -> None:
        reader = self._connection._rfile
        try:
            while header := reader.read(4):
                packet = reader.read(int.from_bytes(header[:3], "little"))
                if packet[:1] != b"\0":
                    return
                event = packet[3:]
                if event[4] == 4:  # ROTATE
                    self._file = (
                        event[27:-4].decode("ascii", "ignore") if event[13:17] != bytes(4) else self._file
                    )
                if packet[1] == _MAGIC and packet[2] & 1:
                    time.sleep(self._delay_s)
                    answer = (
                        struct.pack("<BQ", _MAGIC, *struct.unpack_from("<I", event, 13)) + self._file.encode()
                    )
                    self._connection._sock.sendall(struct.pack("<I", len(answer)) + answer)
        except OSError:
            return  # the end of the test
