"""Real database servers for tests, demos and developers: no root, no Docker, one call."""

from tailrace.devservers.mysql import MySqlServer, start_mysql

__all__ = ["MySqlServer", "start_mysql"]
