"""Real database servers for tests, demos and developers: no root, no Docker, one call.

`with start_mysql() as server:` gives a running server, and removes it with its data at the end.
"""

from tailrace.devservers.apicurio import RegistryServer, start_registry
from tailrace.devservers.kafka import KafkaServer, start_kafka
from tailrace.devservers.mariadb import MariaDbServer, start_mariadb
from tailrace.devservers.mysql import MySqlServer, start_mysql
from tailrace.devservers.postgres import PostgresServer, start_postgres
from tailrace.devservers.server import DevServer

__all__ = [
    "DevServer",
    "KafkaServer",
    "MariaDbServer",
    "MySqlServer",
    "PostgresServer",
    "RegistryServer",
    "start_kafka",
    "start_mariadb",
    "start_mysql",
    "start_postgres",
    "start_registry",
]
