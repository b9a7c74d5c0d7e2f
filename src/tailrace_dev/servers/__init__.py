"""Real database servers for tests, demos and developers: no root, no Docker, one call.

`with start_mysql() as server:` gives a running server, and removes it with its data at the end.
"""

from tailrace_dev.servers.apicurio import RegistryServer, start_registry
from tailrace_dev.servers.kafka import KafkaServer, start_kafka
from tailrace_dev.servers.mariadb import MariaDbServer, start_mariadb
from tailrace_dev.servers.mysql import MySqlServer, start_mysql
from tailrace_dev.servers.nats import NatsServer, start_nats
from tailrace_dev.servers.opensearch import OpenSearchServer, start_opensearch
from tailrace_dev.servers.postgres import PostgresServer, start_postgres
from tailrace_dev.servers.rabbitmq import RabbitMqServer, start_rabbitmq
from tailrace_dev.servers.redis import RedisServer, start_redis
from tailrace_dev.servers.rocketmq import RocketMqServer, start_rocketmq
from tailrace_dev.servers.server import DevServer

__all__ = [
    "DevServer",
    "KafkaServer",
    "MariaDbServer",
    "MySqlServer",
    "NatsServer",
    "OpenSearchServer",
    "PostgresServer",
    "RabbitMqServer",
    "RedisServer",
    "RegistryServer",
    "RocketMqServer",
    "start_kafka",
    "start_mariadb",
    "start_mysql",
    "start_nats",
    "start_opensearch",
    "start_postgres",
    "start_rabbitmq",
    "start_redis",
    "start_registry",
    "start_rocketmq",
]
