"""`tailrace import canal`: an instance's `instance.properties`, and the server's `canal.properties`.

Canal reads the log of MySQL and MariaDB and takes no snapshot. Of its targets the pipeline has Kafka, with
the flat message (`value-format: canal-json`). Its position (`meta.dat`) is the begin of the last entry that
its consumer has confirmed, and its GTID set has the transaction in which that entry stands, whole or not. So
the pipeline begins by file and offset, at the end of the transaction before: that one comes again.
"""

from __future__ import annotations

import re
from typing import Any

from tailrace.config.importing.debezium_kafka import client
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, json_object, properties, wrong
from tailrace.config.importing.patterns import any_case
from tailrace.errors import ConfigError

_INSTANCE = "canal.instance."
_MASTER = "canal.instance.master."
#: Why settings are needless, by pattern.
_NEEDLESS = {
    r"canal\.instance\.tsdb\..*": "the log has names, types and keys with each table",
    r"canal\.instance\.(parser|network|memory|detecting|global|binlog|get\.ddl)\..*": "of its engine",
    r"canal\.instance\.(fallbackInterval.*|connectionCharset|defaultDatabaseName)": "of its engine",
    r"canal\.instance\.multi\.stream\.on": "of PolarDB-X",
    r"canal\.instance\.transaction\.size": "transactions are not divided",
    r"canal\.instance\.filter\.(druid\.ddl|query\.dcl|query\.dml|transaction\.entry|table\.error)": (
        "only rows are delivered, and no row is passed over"
    ),
    r"canal\.instance\.pwdPublicKey": "the password is read from the environment, as it is",
    r"canal\.(id|ip|port|register\.ip|zk.*|zookeeper.*|withoutNetty|user|passwd)": "of its server",
    r"canal\.(file|metrics|admin|conf|auto|aliyun)\..*|canal\.(auto\.scan|destinations)": "of its server",
    r"canal\.mq\.(canal(BatchSize|GetTimeout)|accessChannel|producerGroup|transaction|.*\.thread\.size)": (
        "of its producer"
    ),
    r"canal\.mq\.(retries|batchSize|maxRequestSize|lingerMs|bufferMemory|acks|database\.hash)": (
        "of its producer"
    ),
    r"(rabbitmq|rocketmq|pulsarmq)\..*": "of a target that is not chosen",
}


def read(instance: str, server: str | None) -> Given:
    """The settings of an instance: its own before the server's."""
    values = properties(server) if server is not None else {}
    return Given({**values, **properties(instance)})


def draft(given: Given, name: str) -> Draft:
    """The pipeline file that does what an instance does.

    Args:
        given: the settings.
        name: the instance's name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    made = Draft("Canal", name)
    _source(given, made)
    _columns(given, made)
    _sink(given, made)
    made.settle("")
    _rest(given, made)
    return made


def _source(given: Given, made: Draft) -> None:
    source = made.source
    host, colon, port = given.needed(f"{_MASTER}address").rpartition(":")
    if not colon:
        host, port = port, ""
    if port and not port.isdecimal():
        raise wrong(f"{_MASTER}address", "needed HOST:PORT")
    source["type"] = DraftEntry("mysql")
    source["hostname"] = DraftEntry(host, f"{_MASTER}address")
    if port:
        source["port"] = DraftEntry(int(port), f"{_MASTER}address")
    source["username"] = DraftEntry(given.needed(f"{_INSTANCE}dbUsername"), f"{_INSTANCE}dbUsername")
    password = given.take(f"{_INSTANCE}dbPassword", is_secret=True)
    if password is not None:
        source["password"] = made.secret(
            password,
            "DATABASE_PASSWORD",
            f"{_INSTANCE}dbPassword",
            f"the password of `{source['username'].value}`",
        )
    if number := given.number(f"{_INSTANCE}mysql.slaveId"):
        source["server-id"] = DraftEntry(number, f"{_INSTANCE}mysql.slaveId")
    regex = f"{_INSTANCE}filter.regex"
    source["tables"] = DraftEntry(_patterns(given.take(regex) or r".*\..*"), regex, "in any case, as there")
    black = f"{_INSTANCE}filter.black.regex"
    if (text := given.take(black)) is not None:
        source["table.exclude.list"] = DraftEntry(_patterns(text), black)
    source["starting-position"] = _start(given)
    if given.take(f"{_INSTANCE}standby.address") is not None:
        made.miss(
            f"{_INSTANCE}standby.address",
            "a second address: let a name or a proxy lead to the server; with GTIDs the stream follows",
        )
    given.without(f"{_INSTANCE}standby.")
    if given.flag("canal.auto.reset.latest.pos.mode", default=False):
        made.miss("canal.auto.reset.latest.pos.mode", "a gap is never passed over; see onPositionLost")
    if given.flag(f"{_INSTANCE}enableDruid", default=False):
        made.must_set("the password", f"in clear: {_INSTANCE}dbPassword is encrypted")
    rds = given.without(f"{_INSTANCE}rds.")
    if any(rds.take(name, is_secret=True) for name in rds.left()):
        made.miss(f"{_INSTANCE}rds.*", "log that the server has purged is not fetched from an object store")
    if given.take(f"{_INSTANCE}master.sslMode") is not None:
        made.must_set("source.tls-mode", f"as {_MASTER}sslMode")


def _start(given: Given) -> DraftEntry:
    file = given.take(f"{_MASTER}journal.name")
    position = given.number(f"{_MASTER}position")
    time = given.number(f"{_MASTER}timestamp")
    gtids = given.take(f"{_MASTER}gtid")
    if given.flag(f"{_INSTANCE}gtidon", default=False) and gtids is not None:
        return DraftEntry("gtid:" + re.sub(r"\s", "", gtids), f"{_MASTER}gtid")
    if file is not None:
        return DraftEntry(f"file-at-or-before:{file}:{position or 4}", f"{_MASTER}journal.name")
    if time:
        return DraftEntry(f"timestamp:{time}", f"{_MASTER}timestamp")
    return DraftEntry("latest", "", "Canal begins at the end of the log, without a snapshot")


def _patterns(text: str) -> list[str]:
    """Canal's patterns; in its files a backslash is often written four times."""
    parts = (part.strip().replace("\\\\", "\\") for part in text.split(","))
    return [any_case(part) for part in parts if part]


def _columns(given: Given, made: Draft) -> None:
    name = f"{_INSTANCE}filter.field"
    if (text := given.take(name)) is not None:
        fields = _fields(text, name)
        tables = "|".join(table for table, _ in fields)
        made.source["column.include.list"] = DraftEntry(
            [*(f"{table}\\.({columns})" for table, columns in fields), rf"(?!({tables})\.).*\..*\..*"], name
        )
    name = f"{_INSTANCE}filter.black.field"
    if (text := given.take(name)) is not None:
        if "column.include.list" in made.source:
            raise ConfigError(
                "columns are both named and left out",
                f"`{_INSTANCE}filter.field` and `{name}` are given; a pipeline has one of the lists",
                "name the columns of each table by one of them",
                code="TR-1352",
            )
        made.source["column.exclude.list"] = DraftEntry(
            [f"{table}\\.({columns})" for table, columns in _fields(text, name)], name
        )


def _fields(text: str, name: str) -> list[tuple[str, str]]:
    """Tables, and the columns of each, as patterns."""
    found = []
    for item in text.split(","):
        table, colon, columns = item.strip().partition(":")
        if not colon or "." not in table or not columns:
            raise wrong(name, "needed schema.table:column/column, ...")
        found.append((re.escape(table.strip()), "|".join(re.escape(c.strip()) for c in columns.split("/"))))
    return found


def _sink(given: Given, made: Draft) -> None:
    mode = (given.take("canal.serverMode") or "kafka").lower()
    topic = given.take("canal.mq.topic") or made.name
    flat = given.flag("canal.mq.flatMessage", default=True)
    servers = given.take("kafka.bootstrap.servers") or given.take("canal.mq.servers")
    settings = given.without("kafka.")
    kerberos = settings.without("kerberos.")
    if kerberos.take("enable") == "true":
        made.miss("kafka.kerberos.enable", "write `sasl.kerberos.*` of librdkafka into `properties`")
    if mode != "kafka":
        made.sink["type"] = DraftEntry("console")
        made.must_set("sink", "the target: this one only shows changes")
        made.miss("canal.serverMode", f"`{mode}`; the targets are those of docs/reference/pipeline.md")
        given.without("canal.mq.")
        return
    sink = made.sink
    sink["type"] = DraftEntry("kafka", "canal.serverMode")
    sink["bootstrap-servers"] = DraftEntry(servers or "broker.invalid:9092", "kafka.bootstrap.servers")
    if servers is None:
        made.must_set("sink.bootstrap-servers", "the brokers, which are in canal.properties (--server)")
    sink["topic-prefix"] = DraftEntry(topic, "canal.mq.topic")
    sink["value-format"] = DraftEntry("canal-json", "canal.mq.flatMessage")
    if not flat:
        made.miss("canal.mq.flatMessage", "Canal's protobuf message; messages are JSON")
    if not given.flag(f"{_INSTANCE}filter.query.ddl", default=False):
        made.miss(f"{_INSTANCE}filter.query.ddl", "no message of a schema change is written (`isDdl`)")
    clients = client(settings, made, "kafka.", "KAFKA_PASSWORD")
    if clients:
        sink["properties"] = DraftEntry(clients)
    _topics(given, made, topic)
    ignored = [
        letter
        for kind, letter in (("insert", "c"), ("update", "u"), ("delete", "d"))
        if given.flag(f"{_INSTANCE}filter.dml.{kind}", default=False)
    ]
    if given.flag(f"{_INSTANCE}filter.rows", default=False):
        ignored = ["c", "u", "d"]
    if ignored:
        sink["skipped-operations"] = DraftEntry([*ignored, "t"], f"{_INSTANCE}filter.dml.*")


def _topics(given: Given, made: Draft, topic: str) -> None:
    dynamic = given.take("canal.mq.dynamicTopic")
    if dynamic is None:
        made.miss(
            "canal.mq.topic", f"a topic for each table, `{topic}.database.table`, in place of one for all"
        )
    else:
        made.miss("canal.mq.dynamicTopic", f"topics are `{topic}.database.table`; see `route`")
    partition = given.take("canal.mq.partition")
    hashed = given.take("canal.mq.partitionHash")
    count = given.number("canal.mq.partitionsNum")
    if count is not None:
        made.sink["topic-partitions"] = DraftEntry(count, "canal.mq.partitionsNum")
    if hashed is not None and not all(part.strip().endswith(":$pk$") for part in hashed.split(",")):
        made.miss("canal.mq.partitionHash", "the partition is chosen by the table's key")
    elif hashed is not None:
        made.need_not("canal.mq.partitionHash", "the partition is always chosen by the table's key")
    elif partition is not None and count is None:
        made.need_not(
            "canal.mq.partition", "the order of a key's changes is kept with any number of partitions"
        )


def _rest(given: Given, made: Draft) -> None:
    for name in given.left():
        why = next((text for pattern, text in _NEEDLESS.items() if re.fullmatch(pattern, name)), None)
        if not (given.take(name, is_secret=True) or why):
            continue  # it is empty, as many are in Canal's files
        if why is not None:
            made.need_not(name, why)
        else:
            made.miss(name, "not known")


def start(made: Draft, content: str) -> None:
    """Let the pipeline begin at the position that `meta.dat` of an instance holds.

    Raises:
        ConfigError: it holds none.
    """
    document = json_object(content, "the file of positions")
    cursors = [one.get("cursor") for one in document.get("clientDatas") or [] if isinstance(one, dict)]
    positions: list[Any] = [one.get("postion") for one in cursors if isinstance(one, dict)]  # written so
    if len(positions) != 1 or not isinstance(positions[0], dict):
        raise ConfigError(
            "the file does not hold the position of one consumer",
            f"found {len(positions)}",
            "take the instance's `meta.dat`, of the one consumer that the pipeline stands for",
            code="TR-1354",
        )
    file, offset = positions[0].get("journalName"), positions[0].get("position")
    if not isinstance(file, str) or not re.fullmatch(r"[^:\s]+", file) or not isinstance(offset, int):
        raise ConfigError("the file has no position", "needed: `journalName` and `position`", code="TR-1354")
    made.source["starting-position"] = DraftEntry(
        f"file-at-or-before:{file}:{offset}", "the position in meta.dat", "its last transaction comes again"
    )
