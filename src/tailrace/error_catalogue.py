"""Every condition that an error of Tailrace reports: its code, its cause and its fix.

A code is `TR-` and four digits. The first two are the subject (`SUBJECTS`), as classes of SQLSTATE are. A
code names a condition, and every place that meets the condition reports the same one. A code is never used
again for something else: a condition that no longer occurs leaves a gap.

`make error-page` writes docs/reference/errors.md from this module. `tests/unit/test_error_catalogue.py` fails
where an error has no code, where a code is not here, or where one here is not used. The module is long
because it is one table.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import (
    ConfigError,
    ControlError,
    DecodeError,
    KeyChangedError,
    LeaseLostError,
    PositionLostError,
    PreflightError,
    SchemaMismatchError,
    ServerChangedError,
    SinkError,
    SourceError,
    StateError,
    TableGapError,
    TableLockedError,
    TablesParkedError,
    TailraceError,
    TransientControlError,
    TransientSinkError,
    TransientSourceError,
)


@dataclass(frozen=True)
class Condition:
    """What an error's code stands for.

    Args:
        title: the condition in one line, lower case, no full stop.
        errors: the classes of the errors that report it; none: only findings of preflight that are warnings.
        cause: why it occurs.
        fix: what to do, with the statement or setting.
    """

    title: str
    errors: tuple[type[TailraceError], ...]
    cause: str
    fix: str


#: Subjects by the first two digits of their codes.
SUBJECTS = {
    "10": "Pipeline file and settings",
    "11": "Secrets and files that settings name",
    "12": "This machine",
    "13": "Command line",
    "14": "Captured tables",
    "15": "Transforms and routes",
    "20": "Preflight",
    "21": "Preflight: MySQL and MariaDB",
    "22": "Preflight: PostgreSQL",
    "30": "Connection to the source",
    "31": "Log-in",
    "40": "Requested position",
    "41": "Position lost, and server changed",
    "42": "Replication slot and publication",
    "43": "Snapshots and visibility",
    "44": "Content of the log",
    "46": "Oracle",
    "50": "Tables and columns",
    "52": "Decoding",
    "60": "Offset and checkpoint",
    "61": "Targets",
    "70": "Sinks",
    "71": "Delta",
    "72": "Iceberg",
    "73": "OpenSearch",
    "74": "Kafka",
    "75": "Schema registry",
    "76": "Messages",
    "77": "ClickHouse",
    "78": "RocketMQ and other message systems",
    "79": "DuckDB",
    "80": "Running",
    "81": "Verification",
    "82": "Log archive",
    "84": "Control plane",
    "90": "Development servers and demo",
}

CATALOGUE = {
    # ---- 10 Pipeline file and settings ---------------------------------------------------------------------
    "TR-1001": Condition(
        "the pipeline file cannot be read",
        (ConfigError,),
        "The file does not exist, may not be read by this user, or is not UTF-8 text.",
        "Check the path and the file's permissions, and save the file as UTF-8.",
    ),
    "TR-1002": Condition(
        "the pipeline file is not valid YAML",
        (ConfigError,),
        "The YAML parser stopped at the position in the message, or the file uses a tag, a date or a "
        "control character that a pipeline file may not hold.",
        'Quote the value: `"..."`. Values that begin with `!`, `*`, `&` or `@` need quotes in YAML.',
    ),
    "TR-1003": Condition(
        "the pipeline file is too large",
        (ConfigError,),
        "The file is longer, is nested more deeply, or expands by aliases to more values than "
        "Tailrace reads.",
        "Split the pipeline into several files, or select tables by a pattern in `source.tables` "
        "instead of a list.",
    ),
    "TR-1004": Condition(
        "a key of the pipeline file is not usable",
        (ConfigError,),
        "A key is not text (a number, a list), or `<<` merges something that is not a mapping.",
        "Write keys as text, in quotes where YAML would read a number or a boolean. Let `<<` name a mapping.",
    ),
    "TR-1005": Condition(
        "a setting is given twice, or two settings contradict each other",
        (ConfigError,),
        "The same setting stands twice, under two of its names or in both spellings, or two settings "
        "exclude each other.",
        "Keep one of the two that the message names.",
    ),
    "TR-1006": Condition(
        "a required setting is missing",
        (ConfigError,),
        "The pipeline file or the stream's options lack a setting without a default.",
        "Add the setting that the message names: in a pipeline file under its section, in Spark by "
        '`.option("name", "value")`.',
    ),
    "TR-1007": Condition(
        "a setting is unknown",
        (ConfigError,),
        "No setting has this name. The hint names the nearest one.",
        "Correct the name. The reference lists all options and all settings of pipeline files.",
    ),
    "TR-1008": Condition(
        "a setting has a value that is not allowed",
        (ConfigError,),
        "The setting accepts only the values that the message lists.",
        "Use one of the values listed. SCD type 2 history (`mode: scd2`) needs a Delta sink.",
    ),
    "TR-1009": Condition(
        "a setting has a value of the wrong type",
        (ConfigError,),
        "For example text where a number or a list is needed.",
        "Write the value in the type that the message names. A list is `[a, b]`, a boolean `true` or "
        "`false`.",
    ),
    "TR-1010": Condition(
        "a setting has a wrong value",
        (ConfigError,),
        "The value is out of range or has the wrong form. Values that may hold a secret are not shown.",
        "Correct the value as the message describes.",
    ),
    "TR-1011": Condition(
        "a setting has no effect",
        (ConfigError,),
        "The setting belongs to another database, shape or trigger than the one chosen. Tailrace does "
        "not ignore settings silently.",
        "Remove the setting, or choose what it belongs to.",
    ),
    "TR-1012": Condition(
        "an address names no database",
        (ConfigError,),
        "A PostgreSQL connection belongs to one database, and the address names only a server.",
        "Write `postgresql://HOST[:PORT]/DATABASE`.",
    ),
    "TR-1013": Condition(
        "an address holds a user or a password",
        (ConfigError,),
        "Addresses are printed in messages and logs, so they may not hold credentials.",
        "Use the settings for them: `username` and `password`, `schema-registry-user` and "
        "`schema-registry-password`, or `properties` of a Kafka sink.",
    ),
    "TR-1014": Condition(
        "a setting of the Kafka client belongs to the sink",
        (ConfigError,),
        "The exactly-once guarantee depends on this property, so the sink sets it itself.",
        "Remove the property from `sink.properties`.",
    ),
    "TR-1015": Condition(
        "two sinks of a pipeline have the same path or name",
        (ConfigError,),
        "Each sink keeps its own tables and its own record of what it has written below its path, and is "
        "known by its name.",
        "Give each sink a `path` and a `name` of its own.",
    ),
    "TR-1016": Condition(
        "the schema given for a read is not that of the rows",
        (ConfigError,),
        "`.schema(...)` lacks columns of the rows, has others, gives them in another order or type, or "
        "declares columns NOT NULL that may be null.",
        "Omit `.schema(...)`, and choose, rename or cast columns with `.select(...)`.",
    ),
    "TR-1017": Condition(
        "`CREATE TABLE ... USING tailrace` is not supported",
        (ConfigError,),
        "Spark 4.2 does not pass a table's options to a Python data source when the table is read.",
        "For the rows as they are now: `CREATE TEMPORARY VIEW v USING tailrace OPTIONS (...)`. For their "
        'changes: `spark.readStream.format("tailrace")`.',
    ),
    "TR-1018": Condition(
        "`snapshot.select.statement.overrides` cannot be taken",
        (ConfigError,),
        "Rows are read as of a position of the log, by undoing the changes that the log has behind it. The "
        "log does not know which rows another SELECT would return, or what it computes. So a statement must "
        "be SELECT * FROM the table WHERE and a condition: what `additional-conditions` of a signal allow, "
        "for a table with a key.",
        "Correct the statement. Leave columns out by `column.exclude.list`, and rows of the log, too, by a "
        "transform's `filter`.",
    ),
    "TR-1019": Condition(
        "a statement of `database.initial.statements` is not allowed",
        (ConfigError,),
        "Each session with the source begins with these statements. Others than those that the hint lists "
        "may change which rows are read, their order, or the form of values.",
        "Leave the statement out. Time limits, locks and TLS have options of their own.",
    ),
    "TR-1030": Condition(
        "a list of schema changes has no effect",
        (ConfigError,),
        "`include.schema.changes` and `exclude.schema.changes` say which schema changes targets follow. With "
        "`schema.change.behavior: ignore` they follow none of a column; and another key, another name of the "
        "table or rewritten rows they always follow.",
        "Leave the kind out, or set `schema.change.behavior: exception`, with which the lists say what stops "
        "the stream.",
    ),
    "TR-1031": Condition(
        "targets cannot lose the rows of a dropped table",
        (ConfigError,),
        "`onDropTable` is `apply`. Targets then delete the rows as they do when a table is read again, and "
        "the other settings exclude that.",
        "Set `onRewrite: refresh` and `startingPosition: initial`; or `onDropTable: ignore`.",
    ),
    "TR-1032": Condition(
        "targets cannot mark the rows of a table as deleted",
        (ConfigError,),
        "`on-truncate` or `on-drop-table` asks for a soft delete. What marks rows is the table's transform: "
        "`converter-after-transform: SOFT_DELETE`, and a column that is made of `__data_event_type__` alone. "
        "The table has no such transform; or the option is one of Spark's, where there are no transforms.",
        "Give each table of the pipeline such a transform. Otherwise `apply` with `mode: scd2` (Delta) ends "
        "the rows' versions and keeps them; `ignore` keeps the rows.",
    ),
    "TR-1033": Condition(
        "targets do not rename and drop columns with their tables",
        (ConfigError,),
        "`formerColumns` is `follow`, with which a table whose columns were renamed or dropped is not read "
        "again. Some target keeps such columns: a sink of another type or mode, a transform, a setting of "
        "`schema.change.behavior`, or `on-incompatible-type: new-column`.",
        "Leave the option out: a pipeline sets it where all targets follow.",
    ),
    "TR-1069": Condition(
        "the function of `notifications.call` cannot be imported",
        (ConfigError,),
        "`notifications.call` names a module that Python does not find, or a name that the module lacks.",
        "Write `package.module:function`, and put the module's directory on PYTHONPATH where `tailrace run` "
        "is started.",
    ),
    "TR-1070": Condition(
        "a topic would have a name that Kafka does not allow",
        (ConfigError,),
        "`topic-replacement` makes names of topics. Kafka allows letters, digits, `.`, `_` and `-`, at most "
        "249 of them; names that begin with `__` are internal.",
        "Correct `topic-replacement`, or let `topic-regex` match fewer topics.",
    ),
    "TR-1071": Condition(
        "a column cannot be masked",
        (SchemaMismatchError,),
        "`column.mask.*` or `column.truncate.*` names a key column, by which rows are known, or one that is "
        "not text (and not bytes, which can be cut). Debezium leaves such columns in clear.",
        "Do not match the column. `column.exclude.list` leaves it out; a transform can change it.",
    ),
    "TR-1090": Condition(
        "statements would give away what is hidden",
        (ConfigError,),
        "`include.query` adds the statement of each change to its message, and a statement has the values of "
        "all columns and tables that it names. Another setting masks columns, or leaves columns, tables or "
        "rows out: a mask, a list of columns, `table.exclude.list`, `database.exclude.list`, a transform, or "
        "a route's `shard-column`.",
        "Leave one of them out. Two pipelines can write to different topics: one with statements, and one "
        "with masks.",
    ),
    "TR-1091": Condition(
        "the server does not log statements",
        (PreflightError,),
        "`include.query` needs the text of statements in the log, which the server writes only with "
        "`binlog_rows_query_log_events` (MySQL) or `binlog_annotate_row_events` (MariaDB). Changes that were "
        "logged before have no text.",
        "`SET PERSIST binlog_rows_query_log_events = ON`; MariaDB: `SET GLOBAL binlog_annotate_row_events = "
        "ON`, and the same in the configuration file. Sessions have it once they reconnect.",
    ),
    "TR-1092": Condition(
        "servers whose transactions are given, beside tables that are read first",
        (ConfigError,),
        "`gtid.source.includes` or `gtid.source.excludes` leaves out the changes of some servers, and "
        "`startingPosition` is `initial` or `snapshot`. Ranges of tables are read as of different positions, "
        "each with the changes of all servers up to there.",
        "Set `startingPosition` to latest, earliest, a GTID set or a time, or leave the option out.",
    ),
    "TR-1093": Condition(
        "the server of a transaction is not known",
        (PreflightError, SourceError),
        "`gtid.source.includes` and `gtid.source.excludes` name servers by the GTIDs of MySQL. `gtid_mode` "
        "is not ON, or the log has a transaction from before it was, or it is MariaDB, whose GTIDs have "
        "no UUID.",
        "`SET PERSIST gtid_mode = ON` step by step, and start the stream behind what was logged before; or "
        "leave the options out.",
    ),
    # ---- 11 Secrets and files that settings name -----------------------------------------------------------
    "TR-1101": Condition(
        "an environment variable is not set",
        (ConfigError,),
        "A setting refers to it by `${env:NAME}`.",
        "`export NAME=...` before the start, for the user that runs Tailrace.",
    ),
    "TR-1102": Condition(
        "a file that a setting names cannot be used",
        (ConfigError,),
        "The file of `${file:PATH}`, or one with a certificate or key, does not exist, may not be "
        "read, is too large or has the wrong format.",
        "Check the path and the permissions. Certificates and keys are PEM files. On a cluster the "
        "file must exist on every executor.",
    ),
    "TR-1103": Condition(
        "a name or secret is not text",
        (ConfigError,),
        "A user, database, password or other secret holds the character NUL or is not UTF-8.",
        "Store the value as UTF-8 text, without NUL.",
    ),
    # ---- 12 This machine -----------------------------------------------------------------------------------
    "TR-1201": Condition(
        "a file or directory cannot be written",
        (ConfigError, PreflightError),
        "The disk is full, the path belongs to another user or is not a directory, or no directory for "
        "temporary files exists.",
        "Make the path writable, or name another one: `TAILRACE_CACHE` (cache), `TMPDIR` (temporary "
        "files), `--log-file` (log), `pipeline.checkpoint` (checkpoint).",
    ),
    "TR-1202": Condition(
        "the cache directory is not safe",
        (ConfigError,),
        "Programs are loaded from the cache. Other users may write to it, or it belongs to another user.",
        "`chmod 700` the directory, or set TAILRACE_CACHE to a directory that only you can write to.",
    ),
    "TR-1203": Condition(
        "a package is missing",
        (ConfigError,),
        "The source or sink needs an extra of Tailrace whose packages are not installed or cannot be "
        "imported.",
        "Run the command in the hint, e.g. `pip install 'tailrace[kafka]'`.",
    ),
    "TR-1204": Condition(
        "no suitable Java",
        (ConfigError,),
        "Spark needs Java 17 or newer. None was found, it does not run, or it is older.",
        "Install a JDK or JRE 17 or newer and put `java` on `PATH`, or set JAVA_HOME.",
    ),
    "TR-1205": Condition(
        "another version of PySpark is installed",
        (ConfigError,),
        "Tailrace runs on PySpark 4.1 and 4.2. Spark 4.0 has no Arrow functions for transforms.",
        "`pip install 'pyspark>=4.1,<4.3'`, and remove other installations from `PYTHONPATH`.",
    ),
    "TR-1206": Condition(
        "Spark did not start",
        (ConfigError,),
        "The JVM ended before it answered, or Spark in it failed. Its output says why: often a wrong "
        "setting or Java option, too little memory, or a cluster that does not answer.",
        "Read the log file. Check `pipeline.spark` for wrong settings and Java options, and that the "
        "cluster at `pipeline.master` can be reached and has the same version of Spark.",
    ),
    "TR-1207": Condition(
        "the archive of Spark's classes cannot be written",
        (ConfigError,),
        "The archive lets the JVM start faster. Everything works without it.",
        "Make the cache directory writable, or accept a slower start.",
    ),
    "TR-1208": Condition(
        "Spark's packages could not be downloaded",
        (ConfigError,),
        "The first start of a Delta or Iceberg sink downloads jars from Maven Central.",
        "Give the machine access to Maven Central, or set `spark.jars.ivySettings` in "
        "spark-defaults.conf to a mirror.",
    ),
    "TR-1209": Condition(
        "downloaded files are not the expected ones",
        (ConfigError,),
        "Their SHA-256 differs from the one that this version of Tailrace was built with.",
        "Check what the repository or mirror serves, then start again: the files are downloaded anew.",
    ),
    "TR-1210": Condition(
        "Spark's workers do not find Tailrace",
        (ConfigError, PreflightError),
        "`PYSPARK_PYTHON` names a Python in which Tailrace is not installed; or a worker of a cluster has "
        "none, or one of another version.",
        "Install the same version of Tailrace there, or set PYSPARK_PYTHON. On a cluster, bring an "
        "environment along with `spark.archives` and `spark.pyspark.python`.",
    ),
    "TR-1211": Condition(
        "the failpoint variable is wrong",
        (ConfigError,),
        "Failpoints stop Tailrace on purpose, in tests.",
        "Unset the variable that the message names.",
    ),
    "TR-1212": Condition(
        "there is little free space on a disk",
        (),
        "Less than 1 GiB is free where the checkpoint or the target is.",
        "Free space, or move `pipeline.checkpoint` or the sink's `path` to another disk.",
    ),
    "TR-1213": Condition(
        "no executor of the cluster answers",
        (),
        "All cores or all memory of the cluster are in use, or no executor can start.",
        "End another application, or limit each: `pipeline.spark: {spark.cores.max: 2}`. The pages of the "
        "cluster's master show its applications.",
    ),
    "TR-1214": Condition(
        "metrics cannot be served at the address",
        (ConfigError,),
        "Another process listens there, the address is not of this machine, or the port needs root's rights.",
        "Give `pipeline.metrics` another address, e.g. 127.0.0.1:9405.",
    ),
    "TR-1215": Condition(
        "there are no compiled kernels for this machine",
        (ConfigError,),
        "Decoders and encoders are compiled for Linux on x86-64 (level v2 or newer) and ARM64, and for macOS "
        "on ARM64. This machine is another one, or Tailrace was not installed from its wheel.",
        "Use one of these machines, and `pip install tailrace`.",
    ),
    "TR-1216": Condition(
        "the kernels of a checkout cannot be compiled",
        (ConfigError,),
        "A checkout of the repository compiles its kernels when one of them has changed. That needs Numba "
        "and Zig, which the environment of development has, and no wheel.",
        "`make setup`, and run Tailrace by `.venv/bin/tailrace`.",
    ),
    "TR-1220": Condition(
        "`sources` is not a list of sources with names",
        (ConfigError,),
        "It is no list, an entry has no name or one that cannot be a directory's, or two have the same.",
        "Give each source a `name` of letters, digits, `_` and `-` that no other one has.",
    ),
    "TR-1221": Condition(
        "two sources use one replication slot or server id",
        (ConfigError,),
        "A slot, or a replica's server id, serves one stream. Two streams would cut each other off.",
        "Give each source on the server its own `slot-name` (PostgreSQL) or `server-id` (MySQL, MariaDB).",
    ),
    "TR-1222": Condition(
        "two sources use one path of a sink that takes one stream",
        (ConfigError,),
        "A path of an Iceberg, Parquet or JSON sink holds the targets of one stream.",
        "Put `{source}` into the sink's `path`.",
    ),
    "TR-1223": Condition(
        "tables of two sources would be mixed in one target",
        (ConfigError,),
        "Routes, or equal names, send tables of several sources to one target, where their rows cannot be "
        "told apart, or whose sink takes the rows of one source.",
        "Put `{source}` into `sink-table`; or, in Delta and Kafka sinks, add `shard-column` to the routes.",
    ),
    "TR-1224": Condition(
        "the checkpoint is of a pipeline with one source, or with several",
        (StateError,),
        "`source` keeps its stream in the checkpoint itself, `sources` in directories below. A change from "
        "one to the other would begin new streams, and write rows that targets have for a second time.",
        "Give the pipeline another checkpoint, and other targets.",
    ),
    "TR-1225": Condition(
        "the id of the pipeline's sources cannot be read",
        (StateError,),
        "`_tailrace/sources.json` in the checkpoint's directory is damaged, or of a later version.",
        "Restore it. The id in it is what Delta tables name as their stream.",
    ),
    "TR-1226": Condition(
        "the target of a table is a table that the pipeline captures",
        (ConfigError,),
        "A replica on the server that it copies from. What it writes into a captured table comes back "
        "through the log, and is written again; if the target is the table itself, older rows replace newer "
        "ones.",
        "Route the table to a name that `tables` does not match, or write to another server.",
    ),
    "TR-1230": Condition(
        "OpenLineage's configuration is wrong",
        (ConfigError,),
        "OpenLineage's client rejects what it finds in openlineage.yml, in the variables `OPENLINEAGE_*` and "
        "in section `lineage`. What it says is in the log file only: it may show a secret.",
        "Check these settings by OpenLineage's documentation of its Python client, or give `lineage.url`.",
    ),
    "TR-1231": Condition(
        "lineage without a receiver",
        (ConfigError,),
        "The pipeline file has a section `lineage`, and neither it nor OpenLineage's own configuration says "
        "where events go.",
        "Give `lineage.url`, set OPENLINEAGE_URL, or name a transport in openlineage.yml.",
    ),
    "TR-1232": Condition(
        "the module of a function cannot be imported",
        (ConfigError,),
        "A function in `functions` is in a module that Python does not find, or that fails when it is "
        "imported: on the driver, or on a worker, which may have another Python or lack its packages.",
        "Install the module where Spark's Python finds it, on a cluster on every worker, or name its "
        "directory: `tailrace run PIPELINE.YAML --functions-path DIRECTORY`.",
    ),
    "TR-1233": Condition(
        "the functions' path cannot be used",
        (ConfigError,),
        "`--functions-path` (or TAILRACE_FUNCTIONS_PATH) names nothing that exists, or a file that is "
        "neither an archive (.zip, .whl) nor a module (.py).",
        "Name the directory that has the modules of `functions`.",
    ),
    "TR-1234": Condition(
        "the option `checkpointPath` is not the checkpoint of the query",
        (StateError,),
        "Spark 4.1 does not tell a source where its stream stands, so it reads the checkpoint that the "
        "option names. The query continues from another offset. Nothing was read or written, but Spark "
        "has noted an end of the next batch that was planned from the wrong place.",
        "Give the path of the writer's `checkpointLocation`, and remove the newest file in its directory "
        "`offsets`, which has no counterpart in `commits`.",
    ),
    "TR-1235": Condition(
        "a query on Spark 4.1 has other sources beside a stream of Tailrace",
        (StateError,),
        "The source cannot tell which of the offsets in the checkpoint is its own.",
        "Write each stream by a query of its own, or use Spark 4.2.",
    ),
    "TR-1273": Condition(
        "a version of Python or PySpark is not supported",
        (PreflightError,),
        "`tailrace doctor` compares the versions in this environment with those that Tailrace supports.",
        "Install a supported version, or Tailrace into an environment of its own.",
    ),
    "TR-1274": Condition(
        "a port cannot be listened on",
        (PreflightError,),
        "Another process has the port, or the address is not one of this machine.",
        "Give the setting another port, or end the other process: `ss -ltnp`.",
    ),
    "TR-1275": Condition(
        "the clocks of this machine and of the source differ",
        (),
        "`tailrace_lag_seconds` compares both clocks. The time up to which targets are complete is by the "
        "source's clock alone and stays right.",
        "Let both machines take the time from the same NTP servers.",
    ),
    "TR-1276": Condition(
        "the way to a server is long",
        (),
        "A round trip takes more than a tenth of a second. Planning a batch takes several, and so does "
        "writing it.",
        "Run the pipeline nearer to the server, or use fewer and larger batches: `trigger: interval`.",
    ),
    "TR-1277": Condition(
        "the object store of a path cannot be used",
        (ConfigError,),
        "The path begins with a scheme that Arrow does not know, or a setting of the store is not usable.",
        "Name a local path, or one that begins with `s3://`, `gs://` or `hdfs://`, and check "
        "`spark.hadoop.fs.s3a.*` in `pipeline.spark`.",
    ),
    # ---- 13 Command line -----------------------------------------------------------------------------------
    "TR-1301": Condition(
        "the given offset cannot be used",
        (ConfigError,),
        "The file of `offsets set ... @FILE` cannot be read, or its content is not a stream offset.",
        "Copy the output of `tailrace offsets show PIPELINE.YAML` and change what must change.",
    ),
    "TR-1302": Condition(
        "a table to read again is not captured",
        (ConfigError,),
        "`tailrace resync` names a table that no pattern of `source.tables` matches.",
        "Name tables as `database.table` (PostgreSQL: `schema.table`), or add them to `source.tables`.",
    ),
    "TR-1303": Condition(
        "the checkpoint does not hold the batch",
        (ConfigError,),
        "`tailrace offsets diff` names a batch that Spark has removed, or that does not exist yet.",
        "`tailrace offsets history PIPELINE.YAML` lists the batches that are there.",
    ),
    "TR-1309": Condition(
        "an offset would repeat changes",
        (ConfigError,),
        "`tailrace offsets set` was given a log position before the present one, or the checkpoint is older "
        "than the targets; and a sink appends changes: it would have them twice.",
        "Continue from the present position or a later one. `tailrace resync` reads tables again. Instead of "
        "an older checkpoint, restore the newest, or give the sink a new target and the pipeline a new "
        "checkpoint.",
    ),
    "TR-1310": Condition(
        "an offset is not in the server's log",
        (ConfigError,),
        "`tailrace offsets set` was given a position that the log no longer has, does not have yet, or that "
        "lies within a transaction.",
        "Take a position of `tailrace offsets history`, or the present one. Where the log is gone, "
        "`onPositionLost: refresh` reads every table again.",
    ),
    "TR-1311": Condition(
        "a stream cannot continue from an offset",
        (ConfigError,),
        "`tailrace offsets set` was given an offset with another `mode`, with a parked table that the stream "
        "has not parked, or with a position that was changed in part: changes would come twice, or be lost.",
        "Change the output of `tailrace offsets show`, or take an offset of `tailrace offsets history`, as a "
        "whole. `tailrace signal` parks tables, `tailrace resume` goes on with them.",
    ),
    "TR-1312": Condition(
        "the offset of a running pipeline cannot be set",
        (ConfigError,),
        "A process runs the pipeline and has its offset in memory.",
        "Stop it, set the offset, and start it again.",
    ),
    "TR-1320": Condition(
        "one of several sources must be named",
        (ConfigError,),
        "The command is about one stream, and the pipeline file has several `sources`; or it has none of "
        "that name.",
        "Add `--source NAME`.",
    ),
    "TR-1340": Condition(
        "a parked table cannot be read again",
        (ConfigError,),
        "`tailrace resync` names a table that is parked: nothing of it is read.",
        "`tailrace resume PIPELINE.YAML TABLE...` goes on with it, and reads its rows again.",
    ),
    "TR-1341": Condition(
        "changes cannot be replayed",
        (ConfigError,),
        "`tailrace resume --replay` needs the log since the table was parked. PostgreSQL's slot releases the "
        "log as soon as the other tables have it.",
        "Leave out `--replay`: the table's rows are read again.",
    ),
    "TR-1350": Condition(
        "a file to import cannot be read",
        (ConfigError,),
        "The file of `tailrace import` does not exist, may not be read, is too large, or is not in a form of "
        "that tool.",
        "Check the path. The guides about moving over name the forms of files.",
    ),
    "TR-1351": Condition(
        "a setting of an imported file cannot be taken over",
        (ConfigError,),
        "A setting that a pipeline needs is missing, has a wrong value, is a reference that only the other "
        "tool resolves, or is a regular expression that Python does not read.",
        "Change the setting in the file, or make the change in the pipeline file and leave the setting out.",
    ),
    "TR-1352": Condition(
        "no pipeline can do what an imported file asks for",
        (ConfigError,),
        "Its source or its target does not exist here, or a column that it masks would be in clear.",
        "Write a pipeline file by hand. The message says what stands against it.",
    ),
    "TR-1353": Condition(
        "settings of an imported file have no equivalent",
        (ConfigError,),
        "`tailrace import --strict` was asked to make no pipeline that differs from what the file says.",
        "Without `--strict` the pipeline is made without these settings, and its comments name them.",
    ),
    "TR-1354": Condition(
        "an offset of another tool cannot be taken over",
        (ConfigError,),
        "The file of offsets has none of the connector, or it names no position at which a pipeline "
        "can begin.",
        "Stop the connector and fetch its offset again; or begin with a snapshot, without `--offsets`.",
    ),
    "TR-1369": Condition(
        "a signal cannot be sent",
        (ConfigError,),
        "`tailrace signal` was given a type that it does not know, or `--data` that is not a JSON object.",
        '`tailrace signal --help` names the types. Write data as `--data \'{"data-collections": '
        '["shop.orders"]}\'`.',
    ),
    # ---- 14 Captured tables --------------------------------------------------------------------------------
    "TR-1401": Condition(
        "no table is captured",
        (ConfigError, PreflightError),
        "No table that this user may read matches a pattern of `tables`.",
        "Each pattern must match a whole `database.table` (PostgreSQL: `schema.table`), and a dot matches "
        "any character. If the table exists: `GRANT SELECT ON database.table TO user`.",
    ),
    "TR-1402": Condition(
        "a table has the name of the stream of logical messages",
        (ConfigError,),
        "Logical messages are delivered under this name, so a table of the same name cannot be told "
        "apart from them.",
        "Exclude the table from `tables`, or the messages by `message.prefix.include.list`.",
    ),
    "TR-1403": Condition(
        "two tables have the same name",
        (ConfigError,),
        "Offsets, routes and targets know tables by `database.table`; the names of the two are equal "
        "in that form.",
        "Rename one of them, or capture only one of the databases or schemas.",
    ),
    "TR-1404": Condition(
        "the shape needs exactly one table",
        (ConfigError,),
        "Shapes `row` and `envelope` have the columns of one table.",
        "Name one table in `tables`, or use shape `debezium` for many.",
    ),
    "TR-1450": Condition(
        "a helper table of an online schema tool is not captured",
        (),
        "gh-ost and pt-online-schema-change fill a table `_t_gho` or `_t_new` beside `t`, then rename it to "
        "`t`. Tables with such names are not captured, even where a pattern of `tables` matches them: `t` is "
        "read again when they take its place.",
        "Nothing, if it is one. Otherwise set `captureHelperTables`, or name the table in `tables` without "
        "wildcards.",
    ),
    "TR-1451": Condition(
        "generated columns of MariaDB are omitted",
        (),
        "MariaDB logs generated columns (STORED and VIRTUAL) when a row is inserted, and leaves them out "
        "when it is updated. Their values cannot be known then, so targets do not get these columns.",
        "Nothing, or compute the column in a transform, from the columns that it is made of.",
    ),
    # ---- 15 Transforms and routes --------------------------------------------------------------------------
    "TR-1501": Condition(
        "Spark rejects a transform",
        (ConfigError,),
        "The transform is not valid Spark SQL for this table's columns.",
        "Correct the expression. The hint lists the columns.",
    ),
    "TR-1502": Condition(
        "a transform cannot be repeated",
        (ConfigError,),
        "After a crash a batch is computed again and must give the same rows. The transform "
        "aggregates rows or is not deterministic, as `rand()` and `uuid()`.",
        "Compute the column from the row's own columns.",
    ),
    "TR-1503": Condition(
        "a transform masks a column that does not exist",
        (ConfigError,),
        "`mask-hash` or `truncate` names no column of the transform's result.",
        "Correct the name. The detail lists the columns.",
    ),
    "TR-1504": Condition(
        "a transform drops a key column",
        (ConfigError,),
        "The key is needed to find the row that a change belongs to.",
        "Keep the column in the transform's result.",
    ),
    "TR-1505": Condition(
        "a transform makes a column of a type that targets cannot hold",
        (ConfigError,),
        "Targets hold numbers, text, bytes and times; the column is a struct, map or interval.",
        "Convert it to text: `to_json(column) AS column`.",
    ),
    "TR-1506": Condition(
        "two tables would be mixed in one target",
        (ConfigError,),
        "Two tables are routed to one target, or the target of one lies inside that of the other.",
        "Change the `route` of one of them, so that each has a `sink-table` of its own.",
    ),
    "TR-1507": Condition(
        "a target's name is empty or too long",
        (ConfigError, SinkError),
        "The route gives the target no name, or one that is longer than the database or file system allows.",
        "Route the table to a shorter name: `route: [{source-table: ..., sink-table: ...}]`.",
    ),
    "TR-1508": Condition(
        "a target's path leads out of the sink's directory",
        (SinkError,),
        "The table's name holds path components such as `..`.",
        "Route the table to another name.",
    ),
    "TR-1509": Condition(
        "a target's name is reserved",
        (ConfigError,),
        "The target lies in a database or schema of the server itself, or has the name of one of "
        "Tailrace's own tables.",
        "Route the table to another name, or exclude it.",
    ),
    "TR-1510": Condition(
        "a route names a group that its pattern does not have",
        (ConfigError,),
        "`sink-table` refers to `$N`, and `source-table` has fewer groups.",
        "Add the parentheses to `source-table`, or correct the number.",
    ),
    "TR-1511": Condition(
        "a rule of a transform or route has no effect",
        (),
        "Its `source-table` matches no captured table, or earlier rules apply to all tables that it "
        "matches: the first rule that matches a table counts. Or `routing` of a sink names a target that no "
        "captured table has.",
        "Correct the pattern, which must match the whole `database.table`, or the target's name; or move the "
        "rule before the earlier ones.",
    ),
    "TR-1516": Condition(
        "an entry of `functions` is wrong",
        (ConfigError,),
        "A function is named as `MODULE:FUNCTION`, for SQL by a name of letters, digits and `_`. Paths are "
        "not allowed: a pipeline file cannot bring code of its own.",
        "Write it like `functions: {domain: cleaning:domain}`.",
    ),
    "TR-1517": Condition(
        "a function cannot be called by a transform",
        (ConfigError,),
        "The module has no such name, it is not callable, or it does not say what it returns. Only functions "
        "that are declared for transforms can be called.",
        "`from tailrace.functions import returns`, and `@returns(pa.string())` before the function.",
    ),
    "TR-1518": Condition(
        "a function returns something else than it says",
        (SinkError,),
        "It must return an Arrow array of its declared type, with a value for each row, and needs at least "
        "one column as an argument.",
        "Correct the function: `.cast(...)` converts an array.",
    ),
    "TR-1519": Condition(
        "a function of a transform has failed",
        (SinkError,),
        "It raised an exception, whose class and line the detail has. Its text is not shown, as it may hold "
        "values of rows.",
        "Correct the function. `tailrace check --sample` calls it with rows of the table.",
    ),
    "TR-1520": Condition(
        "a transform gives other rows when it is repeated",
        (PreflightError,),
        "`tailrace check --sample` has transformed the same rows twice, the second time in smaller batches. "
        "A column depends on the time, on chance, on former calls or on the other rows of a batch. After a "
        "crash, targets would get rows that differ from those that they have.",
        "Compute each value from the row's own columns. Take times from the row, and random numbers from "
        "a hash of its key.",
    ),
    "TR-1521": Condition(
        "a function has the name of a function of Spark SQL",
        (ConfigError,),
        "It would replace Spark's own function in all transforms.",
        "Give it another name in `functions`.",
    ),
    "TR-1555": Condition(
        "tables share a target that cannot tell their rows apart",
        (),
        "Routes send several tables to one target that holds rows, without a `shard-column`. Rows with the "
        "same key are one row there: the one that changed last. A delete in one table removes it.",
        "Add `shard-column` to the route, unless the tables' keys never meet.",
    ),
    # ---- 20 Preflight --------------------------------------------------------------------------------------
    "TR-2001": Condition(
        "the server is not set up for capture",
        (PreflightError, SourceError),
        "At least one precondition is not met. The detail lists each one with its own code.",
        "Run the statements in the hint. `tailrace check PIPELINE.YAML` shows all preconditions.",
    ),
    "TR-2002": Condition(
        "the server is too old",
        (PreflightError,),
        "Capture needs features that this version does not have.",
        "Upgrade the server: MySQL 8.0, MariaDB 10.6, PostgreSQL 14 or later.",
    ),
    "TR-2003": Condition(
        "the connection is not encrypted",
        (),
        "Rows cross the network in clear text.",
        "Give the server a certificate and set `tlsMode` to `required` or, safer, `verify-identity`.",
    ),
    "TR-2004": Condition(
        "a captured table may not be read",
        (PreflightError,),
        "The user lacks the privilege SELECT. Snapshots read the table.",
        "`GRANT SELECT ON database.table TO user`. PostgreSQL: also `GRANT USAGE ON SCHEMA schema TO user`.",
    ),
    # ---- 21 Preflight: MySQL and MariaDB -------------------------------------------------------------------
    "TR-2101": Condition(
        "the binary log is off",
        (PreflightError,),
        "Changes are read from the binary log.",
        "Set `log_bin = binlog` in the server's configuration file, then restart the server.",
    ),
    "TR-2102": Condition(
        "`binlog_format` is not ROW",
        (PreflightError,),
        "In other formats the log has statements instead of rows.",
        "`SET PERSIST binlog_format = ROW` (MariaDB: `SET GLOBAL`, and in the configuration file), "
        "then let sessions reconnect.",
    ),
    "TR-2103": Condition(
        "`binlog_row_metadata` is not FULL",
        (PreflightError,),
        "Without full metadata the log does not name the columns of its rows.",
        "`SET PERSIST binlog_row_metadata = FULL` (MariaDB: `SET GLOBAL`, and in the configuration file).",
    ),
    "TR-2104": Condition(
        "`binlog_row_image` is not FULL",
        (PreflightError,),
        "The log omits columns of changed rows. An exactly-once snapshot and upsert targets need whole rows.",
        "`SET PERSIST binlog_row_image = FULL` (MariaDB: `SET GLOBAL`, and in the configuration "
        "file), then let sessions reconnect.",
    ),
    "TR-2105": Condition(
        "partial JSON updates are logged without whole row images",
        (PreflightError,),
        "With `PARTIAL_JSON` the log has only the difference of a JSON value, which needs the "
        "previous value.",
        "`SET PERSIST binlog_row_value_options = ''`, or `SET PERSIST binlog_row_image = FULL`.",
    ),
    "TR-2106": Condition(
        "`mysql56_temporal_format` is off",
        (PreflightError,),
        "New tables get an old format of times without metadata that the log could describe.",
        "`SET GLOBAL mysql56_temporal_format = ON`, and the same in the configuration file. Rebuild "
        "tables created without it: `ALTER TABLE ... FORCE`.",
    ),
    "TR-2107": Condition(
        "the binary log is in a storage engine",
        (PreflightError,),
        "MariaDB 12.3 and later can keep its log inside InnoDB, which Tailrace does not read.",
        "Remove `binlog_storage_engine` from the configuration file, then restart the server.",
    ),
    "TR-2108": Condition(
        "the binary log is kept for a short time",
        (),
        "A stream that is stopped for longer than `binlog_expire_logs_seconds` loses its position.",
        "`SET PERSIST binlog_expire_logs_seconds = 604800` (MariaDB: `SET GLOBAL`, and in the "
        "configuration file).",
    ),
    "TR-2109": Condition(
        "the server has no way to tell when a logged transaction becomes visible",
        (PreflightError,),
        "An exactly-once snapshot must know that a SELECT sees everything up to a log position.",
        "Turn on GTIDs, or `GRANT BACKUP_ADMIN ON *.* TO user; GRANT SELECT ON "
        "performance_schema.log_status TO user`, or set `heartbeatTable` and `binlog_order_commits = "
        "ON`, or use `delivery: at-least-once`.",
    ),
    "TR-2110": Condition(
        "the heartbeat table cannot be written",
        (PreflightError,),
        "`heartbeatTable` names a table that does not exist or that the user may not write to.",
        "`CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP(6) NOT NULL); GRANT INSERT, UPDATE ON t TO user`.",
    ),
    "TR-2111": Condition(
        "the user may not see prepared XA transactions",
        (PreflightError,),
        "A transaction prepared before the stream starts may be committed later; its rows are before "
        "the starting position.",
        "`GRANT XA_RECOVER_ADMIN ON *.* TO user`.",
    ),
    "TR-2112": Condition(
        "a replication privilege is missing",
        (PreflightError,),
        "Reading the log needs REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR).",
        "`GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO user`.",
    ),
    "TR-2113": Condition(
        "the server omits databases from its log",
        (),
        "binlog-do-db or binlog-ignore-db is set, so changes of captured tables may be missing.",
        "Remove the filter from the configuration file, then restart the server.",
    ),
    "TR-2114": Condition(
        "a replica does not log what it replicates",
        (PreflightError,),
        "Changes from its source are not in its own log.",
        "Set `log_replica_updates = ON` (MariaDB: `log_slave_updates`) in the configuration file, "
        "then restart the server.",
    ),
    "TR-2115": Condition(
        "`server_id` is 0",
        (PreflightError,),
        "A server with id 0 does not serve its log.",
        "`SET PERSIST server_id = 1`, or another number that is unique among the servers that "
        "replicate from one another.",
    ),
    "TR-2116": Condition(
        "the option `serverId` is the server's own id",
        (PreflightError,),
        "A reader of the log needs an id that no server of the topology has.",
        "Omit `serverId`, or set it to an unused number.",
    ),
    "TR-2117": Condition(
        "a table's storage engine is not transactional",
        (),
        "A snapshot may read rows whose changes are not in the log yet.",
        "`ALTER TABLE t ENGINE = InnoDB`.",
    ),
    "TR-2118": Condition(
        "changes by foreign keys are not logged",
        (),
        "InnoDB performs CASCADE and SET NULL itself, and does not write the changed child rows to the log.",
        "Use MySQL 9.6 or later with `innodb_native_foreign_keys = OFF`, or change child rows by "
        "statements of the application. `pipeline.verify` with `repair: schedule` finds such rows and "
        "corrects them.",
    ),
    "TR-2119": Condition(
        "`max_allowed_packet` is small",
        (),
        "A statement that reads a table in ranges holds its keys; long keys do not fit.",
        "`SET PERSIST max_allowed_packet = 67108864` (MariaDB: `SET GLOBAL`, and in the configuration file).",
    ),
    "TR-2120": Condition(
        "accounts can change `binlog_format`",
        (),
        "Their sessions can write statements to the log instead of rows, which ends the stream.",
        "Revoke what the hint names from all accounts but administrators: `REVOKE SYSTEM_VARIABLES_ADMIN "
        "ON *.* FROM user`.",
    ),
    "TR-2121": Condition(
        "a crash of the server can make its tables and its log differ",
        (),
        "With `innodb_flush_log_at_trx_commit` other than 1, a crash can undo transactions that the log "
        "holds; with `sync_binlog` other than 1, it can remove transactions from the log that the tables "
        "hold.",
        "`SET PERSIST innodb_flush_log_at_trx_commit = 1; SET PERSIST sync_binlog = 1` (MariaDB: `SET "
        "GLOBAL`, and in the configuration file).",
    ),
    "TR-2122": Condition(
        "rows cannot be read from the server of `snapshotUrl`",
        (PreflightError,),
        "It must be a replica of the server of `url` with MySQL's GTIDs: without filters, without "
        "transactions of its own, and with the same tables. As a warning: it may be written to.",
        "Do what the message says on the replica, or leave out `snapshotUrl`.",
    ),
    "TR-2123": Condition(
        "what others do on the server is not known",
        (),
        "MariaDB shows it only to users with the privilege PROCESS. Without it `snapshotProtection` does "
        "nothing: tables are read at full speed while others use the server.",
        "`GRANT PROCESS ON *.* TO user`, or `snapshotProtection: none`.",
    ),
    # ---- 22 Preflight: PostgreSQL --------------------------------------------------------------------------
    "TR-2201": Condition(
        "`wal_level` is not logical",
        (PreflightError,),
        "Logical decoding needs more information in the WAL.",
        "`ALTER SYSTEM SET wal_level = 'logical'`, then restart the server.",
    ),
    "TR-2202": Condition(
        "the server has too few free replication slots or WAL senders",
        (PreflightError, TransientSourceError),
        "A stream needs one of each, and more while it takes a snapshot or a task reads a large transaction.",
        "`ALTER SYSTEM SET max_replication_slots = 20; ALTER SYSTEM SET max_wal_senders = 20`, then "
        "restart the server; or drop slots that nobody uses: `SELECT "
        "pg_drop_replication_slot('name')`.",
    ),
    "TR-2203": Condition(
        "the role may not replicate",
        (PreflightError,),
        "The role lacks the attribute REPLICATION, or `pg_hba.conf` admits no replication connection "
        "from this host.",
        "`ALTER ROLE user REPLICATION` (Amazon RDS: `GRANT rds_replication TO user`), and admit the "
        "host in `pg_hba.conf`.",
    ),
    "TR-2206": Condition(
        "the server limits how long WAL is kept",
        (),
        "`max_slot_wal_keep_size` or `idle_replication_slot_timeout` invalidates the slot of a stream "
        "that is stopped for a while.",
        "`ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; ALTER SYSTEM SET "
        "idle_replication_slot_timeout = 0; SELECT pg_reload_conf()`.",
    ),
    "TR-2207": Condition(
        "the replication slot does not survive a failover",
        (),
        "It was created without FAILOVER, so standbys have no copy of it.",
        "Over a replication connection: `ALTER_REPLICATION_SLOT name (FAILOVER true)`.",
    ),
    "TR-2208": Condition(
        "the list of synchronized standbys does not fit the standbys",
        (),
        "`synchronized_standby_slots` names slots that no standby uses, and the server then sends "
        "nothing; or lacks one that a standby uses, and the stream may be ahead of that standby.",
        "`ALTER SYSTEM SET synchronized_standby_slots = '...'; SELECT pg_reload_conf()` with the "
        "slots of the standbys that may take over.",
    ),
    "TR-2209": Condition(
        "writing transactions hold up a snapshot",
        (TransientSourceError,),
        "Creating a slot or a snapshot waits for all transactions that write and began earlier, prepared "
        "ones included.",
        "End the oldest ones: `SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS "
        "NOT NULL ORDER BY xact_start; SELECT gid, prepared FROM pg_prepared_xacts`.",
    ),
    "TR-2210": Condition(
        "a table has no replica identity",
        (PreflightError, SourceError),
        "Without one, updates and deletes of a published table fail for all writers.",
        "`ALTER TABLE t REPLICA IDENTITY FULL`, or give the table a primary key. Do the same for each "
        "partition.",
    ),
    "TR-2211": Condition(
        "row-level security hides rows",
        (PreflightError, SourceError),
        "The user would read only some of the rows.",
        "`ALTER ROLE user BYPASSRLS`, or `ALTER TABLE t DISABLE ROW LEVEL SECURITY`.",
    ),
    "TR-2212": Condition(
        "a table is UNLOGGED",
        (PreflightError, SourceError),
        "Changes of an unlogged table are not in the WAL.",
        "`ALTER TABLE t SET LOGGED`, or exclude the table from `tables`.",
    ),
    "TR-2213": Condition(
        "generated columns are omitted",
        (),
        "The log does not contain them; PostgreSQL 18 and later can log stored ones.",
        "Compute the columns at the target or by a transform.",
    ),
    "TR-2214": Condition(
        "the publication does not publish all kinds of changes",
        (PreflightError, SourceError),
        "Inserts, updates or deletes would be missing.",
        "`ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')`.",
    ),
    "TR-2215": Condition(
        "the publication filters rows",
        (PreflightError, SourceError),
        "A snapshot reads all rows of the table, and the log would contain changes of some only.",
        "Add the table again without WHERE: `ALTER PUBLICATION p DROP TABLE t; ALTER PUBLICATION p ADD "
        "TABLE t`.",
    ),
    "TR-2216": Condition(
        "the publication lacks tables, and this user may not add them",
        (PreflightError, SourceError),
        "Only the owner of the publication and of the tables may add them.",
        "Run the statement in the message as that owner: `CREATE PUBLICATION p FOR TABLE ...` or "
        "`ALTER PUBLICATION p ADD TABLE ...`.",
    ),
    "TR-2217": Condition(
        "replayed snapshot batches may differ",
        (),
        "Without whole row images the log cannot undo changes of large unchanged values. After a "
        "crash, append-only targets may hold a newer row twice.",
        "`ALTER TABLE t REPLICA IDENTITY FULL` where this matters.",
    ),
    "TR-2218": Condition(
        "the database's encoding is SQL_ASCII",
        (),
        "Such a database accepts any bytes as text. The stream ends at the first value that is not valid "
        "UTF-8.",
        "Correct such values, or move the tables to a database with `ENCODING 'UTF8'`.",
    ),
    "TR-2219": Condition(
        "the server is a standby without logical decoding",
        (PreflightError,),
        "Standbys decode the log from PostgreSQL 16 on.",
        "Set `url` to the primary, or upgrade the standby.",
    ),
    "TR-2220": Condition(
        "the stream reads from a standby",
        (),
        "On a standby, creating a slot and each snapshot wait for a record that the primary writes, which "
        "an idle one does not.",
        "On the primary, now and then while it is idle: `SELECT pg_log_standby_snapshot()`.",
    ),
    "TR-2221": Condition(
        "a standby cannot change the publication",
        (PreflightError, SourceError),
        "The publication does not exist or lacks captured tables, and the server is a standby or "
        "otherwise read-only.",
        "Run the statement that `tailrace check PIPELINE.YAML` shows on the primary: `CREATE PUBLICATION "
        "p FOR TABLE ...` or `ALTER PUBLICATION p ADD TABLE ...`. Or set `url` to the primary.",
    ),
    # ---- 30 Connection to the source -----------------------------------------------------------------------
    "TR-3001": Condition(
        "the connection was lost",
        (TransientSourceError,),
        "The server, a proxy or the network closed the connection.",
        "Nothing if it passes: Tailrace reconnects for `retryTimeoutMs`. If it repeats, look at the "
        "server's log and at time limits of proxies.",
    ),
    "TR-3002": Condition(
        "the server did not answer in time",
        (TransientSourceError,),
        "Nothing listens there, a firewall drops packets, or the server is overloaded. The limits are "
        "`connectTimeoutMs` for a log-in and `queryTimeoutMs` for an answer.",
        "Check the host, the port and the server's load.",
    ),
    "TR-3003": Condition(
        "the server cannot be reached",
        (TransientSourceError, PreflightError),
        "The host name is unknown, or no connection can be made.",
        "Check that the server runs, and that its host and port can be reached from the driver and all "
        "executors.",
    ),
    "TR-3004": Condition(
        "the server cannot serve the request now",
        (TransientSourceError,),
        "It is starting or shutting down, has no free connection or no disk space, or interrupted the "
        "statement.",
        "Nothing if it passes. Otherwise free disk space, or raise `max_connections`.",
    ),
    "TR-3005": Condition(
        "there is no database server of this kind at the address",
        (SourceError,),
        "Something answers there, in another protocol.",
        "Check host and port. The kind of database is the first part of `url`, or `source.type`.",
    ),
    "TR-3006": Condition(
        "the server offers no TLS",
        (SourceError,),
        "`tlsMode` requires it.",
        "Give the server a certificate (MySQL: `ssl_cert`, `ssl_key`; PostgreSQL: `ssl = on`), or set "
        "`tlsMode` to `preferred` or `disabled`.",
    ),
    "TR-3007": Condition(
        "no TLS connection is possible",
        (SourceError,),
        "Client and server have no TLS version or cipher in common.",
        "Enable TLS 1.2 or 1.3 at the server.",
    ),
    "TR-3008": Condition(
        "the server's certificate is not trusted",
        (SourceError,),
        "It is signed by an authority that is not in `tlsCa`, has expired, or is for another host name.",
        "Set `tlsCa` to the authority that signed it, or set `tlsMode` to what the server can prove.",
    ),
    "TR-3009": Condition(
        "the answer to a query is too large",
        (SourceError,),
        "The server sends more than `maxAnswerBytes` for a query of the catalog. A hostile server can "
        "exhaust memory that way.",
        "If you trust the server, increase `maxAnswerBytes`.",
    ),
    "TR-3010": Condition(
        "the server asked for a file of this machine",
        (SourceError,),
        "A LOAD DATA LOCAL request came where none was offered. The file was not sent. The server is "
        "hostile, or there is a man in the middle.",
        "Find out what answers at this address. Set `tlsMode` to `verify-identity`, with `tlsCa`.",
    ),
    "TR-3011": Condition(
        "a statement is longer than the server accepts",
        (SourceError,),
        "Keys of the table are longer than `max_allowed_packet` allows in a statement.",
        "`SET PERSIST max_allowed_packet = 67108864` (MariaDB: `SET GLOBAL`, and in the configuration file).",
    ),
    "TR-3012": Condition(
        "the server refuses a statement",
        (SourceError,),
        "The server's own error is in the detail: a number, or an SQLSTATE.",
        "Look the error up in the server's documentation, and see the server's log.",
    ),
    "TR-3013": Condition(
        "the database does not exist",
        (SourceError,),
        "The address names a database that the server does not have.",
        "Name an existing one: `postgresql://HOST/DATABASE`.",
    ),
    "TR-3014": Condition(
        "the server blocks this host",
        (SourceError,),
        "Too many connection attempts from this host failed.",
        "`TRUNCATE TABLE performance_schema.host_cache` as an administrator (MariaDB: `FLUSH HOSTS`).",
    ),
    "TR-3015": Condition(
        "the server's version is not understood",
        (SourceError,),
        "What answers is no MySQL, MariaDB or PostgreSQL, or a proxy that changes the version.",
        "Connect to the server itself.",
    ),
    "TR-3016": Condition(
        "the server's answer has an unexpected form",
        (SourceError, DecodeError),
        "What answers is not quite a server of this kind, or Tailrace has a bug.",
        "Check what answers at this host and port. Otherwise report the bug, with the traceback in "
        "the log file.",
    ),
    "TR-3017": Condition(
        "the server violates its protocol",
        (DecodeError,),
        "Packets or messages are malformed or out of sequence: a proxy, a broken network device or a "
        "hostile server.",
        "Connect to the server without a proxy, and over TLS. If it repeats, report it with the "
        "server's version.",
    ),
    "TR-3018": Condition(
        "a statement took too long",
        (TransientSourceError,),
        "The server ended it at the time limit: `snapshotQueryTimeoutMs` for rows of tables, "
        "`queryTimeoutMs` for the rest. PostgreSQL reports `pg_cancel_backend()` by another session in the "
        "same way. MySQL and MariaDB: the next try reads pages of half the size.",
        "Nothing if it passes. Otherwise lower `snapshotChunkRows`, raise the limit, or find out what the "
        "statement waits for: `SHOW FULL PROCESSLIST`, `pg_stat_activity`.",
    ),
    "TR-3031": Condition(
        "the program `ssh` cannot be run",
        (ConfigError,),
        "`sshTunnel` needs OpenSSH's client on the driver's machine and on every executor's.",
        "Install it (Debian: `apt-get install openssh-client`), and put it on PATH.",
    ),
    "TR-3032": Condition(
        "the SSH server cannot be reached",
        (TransientSourceError,),
        "The detail has what `ssh` said: the name is unknown, nobody listens, or the connection was closed.",
        "Check host and port of `sshTunnel`, and that it can be reached from the driver and the executors.",
    ),
    "TR-3033": Condition(
        "the SSH server's host key is not trusted",
        (SourceError,),
        "It is unknown, or another than the known one: the server was set up anew, or there is a man in the "
        "middle. An unknown key is never accepted.",
        "Ask the server's administrator for the key, compare it with that of `ssh-keyscan HOST`, and add the "
        "line to `sshKnownHostsFile` or `~/.ssh/known_hosts` of the user that runs the process.",
    ),
    "TR-3034": Condition(
        "the SSH server refuses the user or the key",
        (SourceError,),
        "The key is not in the user's `authorized_keys`, cannot be read, or has a passphrase and is in no "
        "agent. Nothing is ever asked.",
        "Try `ssh -o BatchMode=yes -i KEY USER@HOST` as the user that runs the process.",
    ),
    "TR-3035": Condition(
        "the SSH server forbids connections to the database",
        (SourceError,),
        "Its configuration, or a restriction of the key, allows no forwarding to this host and port.",
        "`AllowTcpForwarding yes` and `PermitOpen HOST:PORT` in its `sshd_config`, or `permitopen` in "
        "`authorized_keys`.",
    ),
    "TR-3036": Condition(
        "the configuration of `ssh` is wrong",
        (SourceError,),
        "A file of the user that runs the process, or of the machine, has an error or unsafe permissions.",
        "Correct what the detail names.",
    ),
    "TR-3037": Condition(
        "the SSH server does not reach the database",
        (TransientSourceError,),
        "Host and port of `url` are looked up and connected to from there.",
        "Check that the database listens, and that no firewall stands between the two.",
    ),
    "TR-3040": Condition(
        "the proxy refuses the user",
        (SourceError,),
        "It requires a log-in, knows no such user, or wants a method other than user and password.",
        "Set `proxyUser` and `proxyPassword`.",
    ),
    "TR-3041": Condition(
        "the proxy refuses the server",
        (SourceError,),
        "Its rules do not allow this host and port. HTTP proxies often allow port 443 only.",
        "Allow the database's host and port in the proxy's rules.",
    ),
    "TR-3042": Condition(
        "there is no such proxy at the address",
        (SourceError,),
        "What answers speaks another protocol than the `proxy` URL says.",
        "Check kind (`socks5`, `http`), host and port.",
    ),
    "TR-3043": Condition(
        "the proxy does not reach the server",
        (TransientSourceError,),
        "It reports that the server is away, or closed the connection itself.",
        "Check that the database can be reached from the proxy, and that the proxy is in order.",
    ),
    # ---- 31 Log-in -----------------------------------------------------------------------------------------
    "TR-3101": Condition(
        "the credentials are refused",
        (SourceError,),
        "The server does not know the user, the password is wrong, or the user may not log in from "
        "this host.",
        "Check `username` and `password`. MySQL: the host part of `'user'@'host'`. PostgreSQL: "
        "`pg_hba.conf`.",
    ),
    "TR-3102": Condition(
        "a privilege is missing",
        (SourceError,),
        "The user may not do what the message names.",
        "Run the GRANT in the hint. `tailrace check PIPELINE.YAML` shows what a stream needs.",
    ),
    "TR-3103": Condition(
        "the password would be sent without protection",
        (SourceError,),
        "The server requests it in clear text, or encrypted with an unverified key, over a connection "
        "without TLS. It was not sent.",
        "Set `tlsMode` to `required` or, safer, `verify-identity`; or set `serverPublicKeyFile` "
        "(MySQL) or `allowCleartextPassword`.",
    ),
    "TR-3104": Condition(
        "the authentication method is not supported",
        (SourceError,),
        "The method is unknown to Tailrace, or reveals the password.",
        "MySQL: `ALTER USER ... IDENTIFIED WITH caching_sha2_password`. PostgreSQL: `scram-sha-256` "
        "in `pg_hba.conf`.",
    ),
    "TR-3105": Condition(
        "the authentication method needs the package PyNaCl",
        (SourceError,),
        "MariaDB's `client_ed25519` signs with it.",
        "`pip install 'tailrace[mariadb]'`.",
    ),
    "TR-3106": Condition(
        "the server did not prove that it knows the password",
        (SourceError,),
        "It ended SCRAM without its own signature: the server is hostile, or there is a man in the middle.",
        "Find out what answers at this address. Set `tlsMode` to `verify-identity`, with `tlsCa`.",
    ),
    "TR-3107": Condition(
        "the server's public key is too short for the password",
        (SourceError,),
        "The key cannot encrypt a password of this length.",
        "Use TLS (`tlsMode: required`), or give the server an RSA key of 2048 bits or more.",
    ),
    "TR-3108": Condition(
        "the server violates the protocol of the log-in",
        (DecodeError,),
        "A step of the authentication method is malformed, repeated or missing.",
        "Find out what answers at this address: a proxy or a hostile server. Use TLS with `tlsMode: "
        "verify-identity`.",
    ),
    "TR-3120": Condition(
        "a token needs a verified server",
        (ConfigError,),
        "With this `tlsMode` the token could be sent to whoever answers.",
        "`tlsMode: verify-identity` (or `verify-ca`), with `tlsCa` the cloud's authorities.",
    ),
    "TR-3121": Condition(
        "there is no token for the log-in",
        (SourceError,),
        "This process has no identity in the cloud, or the cloud refuses to issue a token for it.",
        "Give the driver and the executors the role, managed identity or service account that the guide on "
        "connections names.",
    ),
    "TR-3122": Condition(
        "the cloud issues no token now",
        (TransientSourceError,),
        "Its endpoint does not answer, or has an error.",
        "Nothing if it passes. Otherwise check that the machine reaches the endpoint.",
    ),
    "TR-3123": Condition(
        "the region of the server is unknown",
        (ConfigError,),
        "A token of AWS is for one region. The host's name has none, nor has the environment.",
        "Set `awsRegion`.",
    ),
    # ---- 40 Requested position -----------------------------------------------------------------------------
    "TR-4001": Condition(
        "the requested position is not between two transactions",
        (ConfigError,),
        "`startingPosition` names an offset inside a transaction or event, or behind the end of its file.",
        "Use the offset that the hint names, or `file-at-or-before:NAME:OFFSET`.",
    ),
    "TR-4002": Condition(
        "the requested position is not in the log",
        (ConfigError,),
        "The replication slot begins after it.",
        "Set `startingPosition` to the LSN in the hint or a later one.",
    ),
    "TR-4003": Condition(
        "the log does not reach back to the requested time",
        (PositionLostError,),
        "The oldest log file was written later.",
        "Set `startingPosition` to a later time, to `earliest` or to `initial`.",
    ),
    "TR-4004": Condition(
        "the server has not executed all requested GTIDs",
        (StateError,),
        "The server is behind, or is not a member of this replication topology.",
        "Wait until it has caught up with its source, or connect to the right server.",
    ),
    "TR-4005": Condition(
        "no log position corresponds to the GTID set",
        (StateError,),
        "The server executed transactions in another order than the server on which the set was taken.",
        "On replicas: `SET PERSIST replica_preserve_commit_order = ON`. Name a set of a server that "
        "keeps the order.",
    ),
    "TR-4006": Condition(
        "the text is not a set of GTIDs",
        (SourceError,),
        "MySQL's form is uuid[:tag]:first-last, MariaDB's domain-server-number.",
        "Copy the set from `SELECT @@gtid_executed` (MariaDB: `SELECT @@gtid_binlog_pos`).",
    ),
    # ---- 41 Position lost, and server changed --------------------------------------------------------------
    "TR-4007": Condition(
        "the stream cannot end at the requested position",
        (ConfigError,),
        "`endingPosition` names a position or time before the stream's own, or a position that the log does "
        "not have, or not yet.",
        "Set it to a position that the log has, or to a time, which may lie ahead.",
    ),
    "TR-4008": Condition(
        "targets lack something at the stream's end",
        (StateError,),
        "The stream has read the log up to `endingPosition`. A table is still to be read again, or has other "
        "columns than targets know, and that can only begin later in the log: after TRUNCATE, after most "
        "schema changes of PostgreSQL, or by a request.",
        "Leave `endingPosition` out, or set a later one: the stream goes on from where it is.",
    ),
    "TR-4101": Condition(
        "the log no longer holds the stream's position",
        (PositionLostError,),
        "The server has purged the log file, or `RESET MASTER` deleted it, while the stream was stopped "
        "or behind.",
        "Set `onPositionLost: refresh` (pipelines: `on-position-lost: refresh`): the stream reads every "
        "table again into the same targets and continues from the log's present end. A stream that began "
        "without a snapshot starts anew, with a new checkpoint. To keep logs longer: `SET PERSIST "
        "binlog_expire_logs_seconds = 604800`.",
    ),
    "TR-4102": Condition(
        "the log ends before the stream's position",
        (PositionLostError,),
        "The server lost the end of its log in a crash, was restored from a backup, or is another server. "
        "The stream has read changes that this server does not have.",
        "Restore the old primary. If its changes are lost: set `onPositionLost: refresh` (pipelines: "
        "`on-position-lost: refresh`): the stream reads every table again into the same targets and "
        "continues from the log's present end. A stream that began without a snapshot starts anew, with a "
        "new checkpoint.",
    ),
    "TR-4103": Condition(
        "the server cannot send the log",
        (SourceError,),
        "The server has the position, and refuses to send it with the error in the detail. The log "
        "file may be damaged.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`, and see the server's log.",
    ),
    "TR-4104": Condition(
        "another server answers at the address",
        (ServerChangedError, PositionLostError),
        "A failover took place, or the address is of another server.",
        "With GTIDs (MySQL, MariaDB) the stream finds its position by itself. PostgreSQL: point `url` "
        "at the server of the stream or a standby of it.",
    ),
    "TR-4105": Condition(
        "the stream cannot continue on the server that took over",
        (StateError,),
        "Its position is of another server, and cannot be looked up on this one: without GTIDs, or "
        "because transactions are missing here.",
        "Point `url` to the server that the stream was reading, or wait until this one has caught up. "
        "With `gtid_mode = ON` a stream follows a failover by itself.",
    ),
    "TR-4106": Condition(
        "changes of a table are missing from the log",
        (TableGapError,),
        "The table was dropped and created again, renamed and back, or removed from what the log contains "
        "for a time (a publication, UNLOGGED), while the stream followed it.",
        "Set `onRewrite: refresh` (pipelines: `on-rewrite: refresh`), the default: the stream reads such "
        "tables again. That needs `startingPosition: initial`.",
    ),
    "TR-4107": Condition(
        "the log no longer holds the rows of an XA transaction",
        (PositionLostError,),
        "It was prepared so long ago that the log of that time is purged, and is committed now or still "
        "open.",
        "`XA RECOVER CONVERT XID`, and end each one with XA COMMIT or XA ROLLBACK; then start the stream. "
        "If one has been committed already: set `onPositionLost: refresh` (pipelines: `on-position-lost: "
        "refresh`), which reads every table again.",
    ),
    "TR-4108": Condition(
        "the server lost events before it could log them",
        (PositionLostError,),
        "The log has an INCIDENT event: changes were lost at the source, and no log holds them.",
        "Set `onPositionLost: refresh` (pipelines: `on-position-lost: refresh`): the stream reads every "
        "table again, in place, and continues from the log's present end.",
    ),
    "TR-4109": Condition(
        "the server is a standby that cannot serve the stream yet",
        (TransientSourceError,),
        "It is not promoted, or has not received the log up to the stream's position.",
        "Wait, or promote it: `SELECT pg_promote()`; or point `url` at the primary.",
    ),
    "TR-4110": Condition(
        "another replica uses the same server id",
        (TransientSourceError,),
        "The server disconnects one of two replicas with the same id.",
        "Set the option `serverId` to an id that no replica of this server has, or omit it.",
    ),
    "TR-4111": Condition(
        "the server crashed, and its tables may lack transactions of its log",
        (PositionLostError,),
        "With `innodb_flush_log_at_trx_commit = 0`, a crash can undo transactions of the last second. The "
        "log still holds them, and the stream has written them to the target.",
        "`SET PERSIST innodb_flush_log_at_trx_commit = 1` (MariaDB: `SET GLOBAL`, and in the "
        "configuration file). Then set `onPositionLost: refresh` (pipelines: `on-position-lost: "
        "refresh`), which reads every table again.",
    ),
    "TR-4120": Condition(
        "neither the server nor the archive holds the log",
        (PositionLostError,),
        "The server has purged the log from the stream's position on, and the archive of the option "
        "`archive` does not have it: it began later, has expired it, has a gap there, or is behind.",
        "Start `tailrace archive` if it is behind. If the range is lost: set `onPositionLost: refresh` "
        "(pipelines: `on-position-lost: refresh`): the stream reads every table again into the same targets.",
    ),
    "TR-4140": Condition(
        "the changes of a parked table are no longer in the log",
        (SourceError,),
        "`tailrace resume --replay` asks for the changes since the table was parked. The server has purged "
        "that part of the log since then. The table is parked again, the others go on.",
        "`tailrace resume PIPELINE.YAML TABLE...` reads the table's rows again.",
    ),
    "TR-4143": Condition(
        "the replica of `snapshotUrl` has transactions of its own",
        (SourceError,),
        "Somebody has written to the replica. Its rows cannot be read as of a position of the source's "
        "log. Nothing of the batch is written.",
        "Make the replica read-only and rebuild it, or leave out `snapshotUrl`.",
    ),
    "TR-4173": Condition(
        "the server keeps the log that the pipeline needs for a short time only",
        (),
        "At the present rate, or by its age, the log at the pipeline's position may be gone within six "
        "hours: `binlog_expire_logs_seconds` (MySQL, MariaDB), `max_slot_wal_keep_size` or "
        "`idle_replication_slot_timeout` (PostgreSQL). A pipeline that has lost its position has to read its "
        "tables again.",
        "Raise the limit, start the pipeline if it is stopped, or look why it is behind: `tailrace status "
        "PIPELINE.YAML`. Where only tables that are not captured change, set `heartbeat.action.query`.",
    ),
    # ---- 42 Replication slot and publication ---------------------------------------------------------------
    "TR-4201": Condition(
        "the replication slot no longer holds the stream's position",
        (PreflightError, PositionLostError),
        "The server has invalidated the slot, or it was dropped, created again or read by another process.",
        "Set `onPositionLost: refresh` (pipelines: `on-position-lost: refresh`): the stream creates the "
        "slot anew, and reads every table again into the same targets. A stream that began without a "
        "snapshot starts anew, with a new checkpoint. To keep WAL longer: raise `max_slot_wal_keep_size`.",
    ),
    "TR-4202": Condition(
        "a replication slot of this name already exists",
        (ConfigError,),
        "This stream did not create it. If two streams read one slot, each loses what the other reads.",
        "Set `slotName` to another name. If nobody needs the slot: `SELECT "
        "pg_drop_replication_slot('name')`.",
    ),
    "TR-4203": Condition(
        "the replication slot is of another kind",
        (ConfigError, PreflightError),
        "It is physical, or belongs to another plugin or database.",
        "Set the option `slotName` to another name.",
    ),
    "TR-4204": Condition(
        "a replication slot was not removed",
        (ConfigError,),
        "It is not of this pipeline, or has no mark of a stream.",
        "If it is certain that nobody needs it: `tailrace drop --unmarked PIPELINE.YAML`, or `SELECT "
        "pg_drop_replication_slot('name')`.",
    ),
    "TR-4205": Condition(
        "another process reads the replication slot",
        (TransientSourceError,),
        "A second run of the pipeline is active or is creating the slot, or the server has not noticed "
        "yet that an earlier one ended.",
        "Stop the other process, or give each stream a `slotName` of its own. A dead one is noticed after "
        "`wal_sender_timeout`.",
    ),
    "TR-4206": Condition(
        "the publication did not exist when the changes were made",
        (ConfigError,),
        "It was dropped and created again; the log before its creation cannot be decoded with it.",
        "Start a new stream with a new checkpoint.",
    ),
    # ---- 43 Snapshots and visibility -----------------------------------------------------------------------
    "TR-4301": Condition(
        "logged transactions are not visible in time",
        (TransientSourceError,),
        "They are in the log, and a SELECT does not see them yet: the server waits for a group commit "
        "or for semi-synchronous replicas.",
        "Look at `binlog_group_commit_sync_delay` and at semi-synchronous replicas that do not answer.",
    ),
    "TR-4302": Condition(
        "the snapshot under which rows are read is gone",
        (TransientSourceError,),
        "The server or the process that kept it was restarted.",
        "Nothing: a stream reads the batch again, with a new snapshot. Repeat a command, such as "
        "`tailrace archive --base`.",
    ),
    "TR-4303": Condition(
        "a table was rewritten while its snapshot was read",
        (TransientSourceError,),
        "TRUNCATE, VACUUM FULL or ALTER TABLE replaced the table's files, and the snapshot no longer "
        "shows its rows.",
        "Nothing: a stream reads the batch again, with a new snapshot. Repeat a command, such as "
        "`tailrace archive --base`. Avoid rewriting tables meanwhile.",
    ),
    "TR-4304": Condition(
        "a table is locked",
        (TableLockedError,),
        "Another session holds a lock on the table for longer than `lockTimeoutMs`, as ALTER TABLE, VACUUM "
        "FULL or LOCK TABLE do. Other tables continue meanwhile.",
        "Wait for its end, or end it as the hint says: `SELECT pg_terminate_backend(pid)`, in MySQL and "
        "MariaDB `KILL id`. A prepared transaction: `ROLLBACK PREPARED 'gid'`.",
    ),
    # ---- 44 Content of the log -----------------------------------------------------------------------------
    "TR-4401": Condition(
        "the log has a statement instead of rows",
        (SourceError,),
        "A session wrote with `binlog_format` STATEMENT or MIXED.",
        "`SET PERSIST binlog_format = ROW`, let sessions reconnect, and let no session change it. "
        "Then start a new stream.",
    ),
    "TR-4402": Condition(
        "the log has changes that were rolled back",
        (SourceError,),
        "A transaction mixed transactional and other storage engines, and was rolled back.",
        "Use InnoDB for all tables that are changed together with captured ones.",
    ),
    "TR-4403": Condition(
        "the log has an event that Tailrace does not know",
        (DecodeError,),
        "A newer version or a special feature of the server wrote it; it may hold changes.",
        "Turn off the feature, or upgrade Tailrace.",
    ),
    "TR-4404": Condition(
        "an XA transaction is too large",
        (SourceError,),
        "It has more than 2 GiB of changes.",
        "Split it into several transactions, and start a new stream.",
    ),
    "TR-4405": Condition(
        "the log does not hold whole rows",
        (SchemaMismatchError, SinkError),
        "`binlog_row_image` was not FULL, or the table had no REPLICA IDENTITY FULL, when the change "
        "was logged. Columns that the target needs are missing.",
        "MySQL: `SET PERSIST binlog_row_image = FULL`, and let sessions reconnect. PostgreSQL: `ALTER "
        "TABLE t REPLICA IDENTITY FULL`. Then start a new stream. Or use JSON messages or `mode: "
        "changelog`, which need no whole rows. Delta, Iceberg, Kafka: `on-refused-row: quarantine` puts "
        "such rows aside.",
    ),
    "TR-4406": Condition(
        "rows of a table without a key cannot be reconstructed",
        (SchemaMismatchError,),
        "Changes in the log refer to rows that the snapshot does not have.",
        "Give the table a primary key, then start a new stream.",
    ),
    "TR-4407": Condition(
        "the log does not name its columns",
        (SchemaMismatchError,),
        "`binlog_row_metadata` was MINIMAL when the change was logged, and the table has changed since.",
        "`SET PERSIST binlog_row_metadata = FULL`, then start a new stream.",
    ),
    "TR-4408": Condition(
        "the log commits a prepared transaction without its changes",
        (DecodeError,),
        "The replication slot was created with `two_phase`, and its changes were sent at PREPARE.",
        "Create the slot without `two_phase` (`tailrace drop`, and let the stream create it), then "
        "start a new stream.",
    ),
    "TR-4409": Condition(
        "rows of a table changed without being logged",
        (SchemaMismatchError,),
        "A schema change altered rows that the log does not tell (a default for old rows, a conversion, a "
        "table swapped or truncated), and `onRewrite` is `fail`.",
        "Set `onRewrite: refresh` (pipelines: `on-rewrite: refresh`): the stream reads such tables again, "
        "in place. Or set `onRewrite: ignore`, which keeps the old values in targets; `tailrace resync "
        "PIPELINE.YAML TABLE` then reads a table again when you ask for it.",
    ),
    "TR-4410": Condition(
        "rows of a table cannot be read as of the stream's end",
        (SchemaMismatchError,),
        "The stream ends at `endingPosition`. The table was altered or dropped behind it while rows of it "
        "were still to be read; or a row was changed of which the log has only the key (PostgreSQL without "
        "REPLICA IDENTITY FULL, after a restart).",
        "Start a new stream that ends later; or leave `endingPosition` out, and the stream goes on.",
    ),
    "TR-4430": Condition(
        "a schema change stops the stream, as it is set to",
        (SchemaMismatchError,),
        "`schema.change.behavior` is `exception`, or `onTruncate` or `onDropTable` is `fail`. Nothing of the "
        "change, nor of what follows it, has been written.",
        "Make the targets ready for it. Then set `schema.change.behavior: evolve`, or name the kind of "
        "change in `exclude.schema.changes`, and start the stream again: it continues with the change.",
    ),
    # ---- 46 Oracle -----------------------------------------------------------------------------------------
    "TR-4601": Condition(
        "the database is not an open primary",
        (PreflightError,),
        "It is a standby, or open for reading only. LogMiner describes rows by the catalog of the database "
        "that it runs in, and open transactions are known there alone.",
        "Name the primary in `url`.",
    ),
    "TR-4602": Condition(
        "the database does not archive its redo logs",
        (PreflightError,),
        "In NOARCHIVELOG mode the online logs are written over, and with them changes that were not read.",
        "`SHUTDOWN IMMEDIATE`, `STARTUP MOUNT`, `ALTER DATABASE ARCHIVELOG`, `ALTER DATABASE OPEN`.",
    ),
    "TR-4603": Condition(
        "the database has no supplemental logging",
        (PreflightError,),
        "Without the minimal one LogMiner cannot tell which change belongs to which row.",
        "`ALTER DATABASE ADD SUPPLEMENTAL LOG DATA` in the root of the container database.",
    ),
    "TR-4604": Condition(
        "a table has no supplemental logging of all columns",
        (PreflightError,),
        "The log then has only those columns of an updated row that the update sets.",
        "`ALTER TABLE t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS`.",
    ),
    "TR-4605": Condition(
        "the database does not force logging",
        (PreflightError,),
        "A direct load into a NOLOGGING table, or partition, changes rows without an entry in the log.",
        "`ALTER DATABASE FORCE LOGGING`.",
    ),
    "TR-4606": Condition(
        "the database has several redo threads",
        (PreflightError,),
        "Each instance of a cluster (RAC) writes a log of its own. Their common order is not handled.",
        "None: clusters cannot be captured.",
    ),
    "TR-4607": Condition(
        "the service or the user is of the wrong container",
        (PreflightError,),
        "Tables are in a pluggable database, and the log is that of the whole container database. So `url` "
        "names a service of the pluggable database, and `username` a common user (`C##...`), who may change "
        "to the root.",
        "Create the user in the root: `CREATE USER c##tailrace IDENTIFIED BY ... CONTAINER = ALL`.",
    ),
    "TR-4608": Condition(
        "a privilege for LogMiner, for a view or for flashback queries is missing",
        (PreflightError,),
        "Rows are read AS OF SCN, the log by DBMS_LOGMNR, positions from V$ views.",
        "Run the GRANT that the hint has.",
    ),
    "TR-4609": Condition(
        "a table has columns of a type that is not captured",
        (PreflightError,),
        "LOBs, XML, JSON, LONG, intervals, row ids and object types are not read: LogMiner describes their "
        "changes in parts, or not at all. TIMESTAMP WITH LOCAL TIME ZONE is read where `DBTIMEZONE` is UTC.",
        "Leave the columns out with `column.exclude.list`.",
    ),
    "TR-4610": Condition(
        "a table is of a kind that is not captured",
        (PreflightError,),
        "It is organized by an index or a cluster, or has a name of more than 30 bytes, which LogMiner does "
        "not describe.",
        "Leave the table out of `tables`, or rename what is too long.",
    ),
    "TR-4611": Condition(
        "a table's key sorts in a way that is the server's own",
        (PreflightError,),
        "A snapshot and the log meet at a key: keys must compare here as they do there. Text does in "
        "AL32UTF8 with binary collation; NCHAR, NVARCHAR2, FLOAT and moments with a zone do not.",
        "Leave the table out of `tables`.",
    ),
    "TR-4612": Condition(
        "changes cannot be read, as their table was altered before they were",
        (SchemaMismatchError,),
        "LogMiner describes rows by the catalog as it is now. What was logged before a table was altered, "
        "truncated or dropped cannot be described afterwards. If the schema change lies in the same batch, "
        "the table is read again instead, with `startingPosition: initial` and `onRewrite: refresh`.",
        "`maxParked` parks such a table, and `tailrace resume` reads it again. Let the stream catch up "
        "before a schema change.",
    ),
    "TR-4613": Condition(
        "the log has only a part of a row",
        (SchemaMismatchError,),
        "The table had no supplemental logging of all columns when the row was changed.",
        "`ALTER TABLE t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS`, then start a new stream.",
    ),
    "TR-4614": Condition(
        "what LogMiner returns cannot be read",
        (DecodeError,),
        "A statement in SQL_REDO has a form that is not known, or LogMiner says that it misses a part of the "
        "log. Nothing is skipped.",
        "Look at the SCN in `V$LOGMNR_CONTENTS`, and report the form of the statement, without its values.",
    ),
    "TR-4615": Condition(
        "records of LogMiner contradict each other",
        (DecodeError,),
        "A statement on several rows is cut off, a change has no transaction, or a rollback to a savepoint "
        "undoes a change that is not there.",
        "Report what `V$LOGMNR_CONTENTS` has at the SCN, without values.",
    ),
    "TR-4616": Condition(
        "redo logs are gone",
        (PositionLostError, TransientSourceError),
        "Archived logs were removed before the stream, or a transaction that is open at its position, no "
        "longer needed them; or an online log was written over while it was read, which another try "
        "overcomes.",
        "Keep archived logs longer, or restore them. `onPositionLost: refresh` reads all tables again.",
    ),
    "TR-4617": Condition(
        "it is not known where the log of open transactions begins",
        (TransientSourceError,),
        "A transaction in `V$TRANSACTION` has no `START_SCN`.",
        "Wait until it has ended; the stream starts then.",
    ),
    "TR-4618": Condition(
        "the undo of a position is gone (ORA-01555, ORA-08181)",
        (SourceError,),
        "Rows are read as of the batch's SCN. The database keeps the undo for that for `UNDO_RETENTION` "
        "seconds, and only if there is room. A batch that is repeated later than that cannot be read.",
        "Raise `UNDO_RETENTION`, and `ALTER TABLESPACE ... RETENTION GUARANTEE`; then start a new stream.",
    ),
    "TR-4619": Condition(
        "a table was altered while it was read (ORA-01466)",
        (SchemaMismatchError, TransientSourceError),
        "A flashback query does not reach behind a schema change, and LogMiner needs the same catalog from "
        "begin to end.",
        "The next try may read it. If it persists, read the table again (`tailrace reread`).",
    ),
    "TR-4620": Condition(
        "the database refuses a statement",
        (SourceError,),
        "For the reason with this ORA number. The server's text is not shown, as it may quote values.",
        "Look up the number.",
    ),
    "TR-4621": Condition(
        "a value does not fit its column's type",
        (DecodeError,),
        "Years B.C., more digits than the type declares, or a form of LogMiner that is not known.",
        "Correct the value, or leave the column out with `column.exclude.list`.",
    ),
    "TR-4622": Condition(
        "a table was changed in a way that LogMiner does not describe",
        (SchemaMismatchError,),
        "By parallel DML, whose parts are committed by another transaction, or by an operation that is "
        "UNSUPPORTED in `V$LOGMNR_CONTENTS`.",
        "Leave the table out, or avoid such operations and start a new stream.",
    ),
    "TR-4623": Condition(
        "the database is another one",
        (PositionLostError,),
        "Its DBID is another one, or it was opened with RESETLOGS: its SCNs cannot be compared with the "
        "stream's.",
        "Name the former database in `url`; `onPositionLost: refresh` or a new stream reads all tables.",
    ),
    # ---- 50 Tables and columns -----------------------------------------------------------------------------
    "TR-5001": Condition(
        "a table has no key",
        (PreflightError, SourceError, SinkError),
        "A target that holds rows needs a key to find the row of a change. Without one, the rows of a table "
        "of MySQL are read in one transaction, whose place in the log must be known: that needs InnoDB, "
        "GTIDs or `performance_schema.log_status`, and moments in which nobody writes to the table.",
        "`ALTER TABLE t ADD PRIMARY KEY (...)`, in MySQL also an invisible one; or a target that "
        "appends, such as `mode: changelog`; or leave the table, or only its rows, out "
        "(`snapshot.include.collection.list`).",
    ),
    "TR-5002": Condition(
        "the table's definition changed while it was read",
        (SchemaMismatchError, TransientSourceError),
        "A DDL statement altered, renamed or dropped the table at the same moment.",
        "Start the stream again: it reads the new definition. If a column's type changed, see TR-5004.",
    ),
    "TR-5003": Condition(
        "a table's key changed while its snapshot was read",
        (KeyChangedError, SchemaMismatchError),
        "Rows are read in ranges of the old key, which was dropped, renamed or altered. That includes the "
        "labels of an ENUM.",
        "Set `onRewrite: refresh` (pipelines: `on-rewrite: refresh`), the default, and start the stream: "
        "it reads the table again by its new key. That needs `startingPosition: initial`; else change the "
        "key back.",
    ),
    "TR-5004": Condition(
        "a column has changed its type",
        (SchemaMismatchError,),
        "A running stream without a pipeline reads the column in the type it had at the start.",
        "Start the stream again with a new checkpoint, or use a pipeline, which alters its targets.",
    ),
    "TR-5005": Condition(
        "a column's type is not supported",
        (SchemaMismatchError,),
        "Tailrace cannot represent its values.",
        "Exclude the table from `tables`, or change the column's type.",
    ),
    "TR-5006": Condition(
        "a column's character set is not supported",
        (SchemaMismatchError,),
        "Tailrace cannot convert its text.",
        "`ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4`, or exclude the table.",
    ),
    "TR-5007": Condition(
        "a table has system versioning",
        (SchemaMismatchError,),
        "The log of such a table mixes old versions of rows with current ones.",
        "Exclude the table, or `ALTER TABLE t DROP SYSTEM VERSIONING`.",
    ),
    "TR-5008": Condition(
        "a key column has a type over which ranges cannot be read",
        (SchemaMismatchError, PreflightError, SourceError),
        "The order of its values is not known to Tailrace or not stable (ENUM, floats, arrays, some types "
        "of extensions).",
        "Exclude the table, or give it another primary key. PostgreSQL: name the column in the option "
        "`textColumns`, which captures it as text.",
    ),
    "TR-5009": Condition(
        "the collation of a key column is not known",
        (SchemaMismatchError,),
        "The server compares keys by the column's collation, which a schema without the catalog does "
        "not hold.",
        "Take the table's schema from the server's catalog. If you do not use Tailrace as a library, "
        "report a bug.",
    ),
    "TR-5010": Condition(
        "a date is zero or partial",
        (SourceError, DecodeError),
        "MySQL permits `0000-00-00` and months or days of 0, for which no date type has a value.",
        "Correct the values, or set the option `zeroDates` to `text` or `null`.",
    ),
    "TR-5011": Condition(
        "a value does not fit its column's Arrow type",
        (DecodeError,),
        "PostgreSQL permits more than the type can hold: NaN in a NUMERIC(p, s), an array of two dimensions, "
        "moments near the limits of its timestamps.",
        "Name the column in the option `unfitAsNull`: such values are read as null; or in `textColumns`: all "
        "of its values are captured as text.",
    ),
    "TR-5012": Condition(
        "a value came in binary form, but is read as text",
        (DecodeError,),
        "An internal signal: Tailrace requests the log again as text.",
        "Nothing. If it ends a stream, report a bug.",
    ),
    "TR-5013": Condition(
        "columns were renamed while a table's snapshot was read",
        (SchemaMismatchError,),
        "The log has rows with the old names, and they do not show which column is which.",
        "Set `onRewrite: refresh` (pipelines: `on-rewrite: refresh`) and `startingPosition: initial`: the "
        "stream then leaves such rows out, as it reads the whole table again.",
    ),
    "TR-5014": Condition(
        "a key column is left out",
        (SchemaMismatchError, PreflightError, SourceError),
        "`column.include.list` or `column.exclude.list` leaves out a column of a table's key, by which rows "
        "are known.",
        "Take the column in. A transform can mask or hash its values (`mask-hash`).",
    ),
    # ---- 52 Decoding ---------------------------------------------------------------------------------------
    "TR-5201": Condition(
        "the log is malformed",
        (DecodeError,),
        "Bytes of the log contradict their own headers or the table's definition: a damaged file, a "
        "defective proxy, or a bug of Tailrace.",
        "MySQL: check the file with `mysqlbinlog --verify-binlog-checksum`. If it is intact, report a "
        "bug with the server's version and the table's definition.",
    ),
    "TR-5202": Condition(
        "rows of a snapshot cannot be decoded",
        (DecodeError,),
        "A row has other columns or lengths than the table's definition says.",
        "Start the stream again. If it repeats, report a bug with the table's definition.",
    ),
    "TR-5203": Condition(
        "a value cannot be decoded",
        (DecodeError, SourceError),
        "The bytes are not valid in the column's type or character set. Servers accept such bytes in some "
        "settings.",
        "Find the row by the position in the detail and correct the value; or change the column's "
        "character set to the one of its content.",
    ),
    "TR-5204": Condition(
        "a value, event or transaction is larger than the limit",
        (DecodeError,),
        "Tailrace holds at most 1 to 2 GiB in one piece.",
        "Write the rows in smaller transactions, or exclude the table.",
    ),
    # ---- 60 Offset and checkpoint --------------------------------------------------------------------------
    "TR-6001": Condition(
        "the checkpoint's offset cannot be read",
        (StateError,),
        "Another version of Tailrace wrote it.",
        "Continue with the version that wrote it, or a newer one.",
    ),
    "TR-6002": Condition(
        "the offset has damaged key bounds",
        (SourceError,),
        "A key range stored in the offset does not fit the table's key.",
        "Restore the checkpoint from a backup, set an earlier offset with `tailrace offsets set`, or "
        "start a new stream.",
    ),
    "TR-6003": Condition(
        "the checkpoint is not of a Tailrace stream",
        (StateError,),
        "Another Spark query wrote it.",
        "Set `pipeline.checkpoint` to a directory of its own.",
    ),
    "TR-6004": Condition(
        "the checkpoint holds no offset",
        (StateError,),
        "The pipeline has not planned a batch yet.",
        "Run the pipeline once: `tailrace run PIPELINE.YAML`.",
    ),
    "TR-6005": Condition(
        "the last batch is planned but not committed",
        (StateError,),
        "Its end must not change before the sink has written it.",
        "Start the pipeline, stop it, and try again.",
    ),
    "TR-6007": Condition(
        "the checkpoint is of another stream",
        (StateError,),
        "It was written with another `shape`, or with other `tables`, of which none is captured now.",
        "Restore the option that the message names, or start a new query with a new checkpoint and a new "
        "target. To add tables to a stream, keep its own in `tables`.",
    ),
    "TR-6008": Condition(
        "a column cannot be taken into a stream",
        (StateError,),
        "`column.include.list` or `column.exclude.list` has changed so that a column is captured which the "
        "stream has left out, and the stream does not read tables again: targets would have NULL in it.",
        "Restore the option, or start a new query with a new checkpoint and a new target. A stream with "
        "`startingPosition: initial` and `onRewrite: refresh` reads such tables again.",
    ),
    "TR-6009": Condition(
        "the checkpoint is older than a target",
        (StateError,),
        "A target has a batch of the stream that the checkpoint does not know: an older copy of it was "
        "restored, or a crash of the machine has lost its newest files. New batches would have numbers that "
        "the target has; it would take them for batches that come again, and leave their changes out.",
        "Restore the checkpoint with which the target was written. If it is lost, and the sinks hold rows: "
        "`tailrace offsets show PIPELINE.YAML > offset.json`, then `tailrace offsets set PIPELINE.YAML "
        "@offset.json`. It goes on with numbers above those of the targets, applies the changes since the "
        "checkpoint once more, and reads all tables again, in place. A sink that appends changes needs a new "
        "target and a new checkpoint.",
    ),
    "TR-6045": Condition(
        "nothing has taken up a request to read tables again",
        (StateError,),
        "The pipeline is stopped, or its trigger's interval is longer than `tailrace repair --patience`.",
        "Start the pipeline: `tailrace run PIPELINE.YAML`. It begins with the request, which is kept. Then "
        "repeat `tailrace repair PIPELINE.YAML`.",
    ),
    "TR-6055": Condition(
        "the list of written tables cannot be read",
        (StateError,),
        "`_tailrace/written.json` below the checkpoint was not written by Tailrace, or by another version.",
        "Remove the file. Targets that were dropped before the next start are then not noticed.",
    ),
    "TR-6077": Condition(
        "the list of a stream's sinks cannot be read",
        (StateError,),
        "`_tailrace/sinks.json` below the checkpoint was not written by Tailrace, or by another version.",
        "Remove the file. Sinks that were left out before the next start do not catch up by themselves then: "
        "`tailrace resync PIPELINE.YAML TABLE...` has their tables read again.",
    ),
    "TR-6078": Condition(
        "a sink has missed batches",
        (StateError,),
        "The sink was left out of the pipeline file for some batches. It catches up by reading its tables "
        "again, but the stream began without a snapshot and does not read tables as a whole.",
        "Give the sink another path, topic prefix or database, whose targets begin now. Or start a new "
        "stream.",
    ),
    # ---- 61 Targets ----------------------------------------------------------------------------------------
    "TR-6101": Condition(
        "the target is not this stream's",
        (StateError,),
        "Another stream wrote the table, topic or directory, or something other than Tailrace did. "
        "Writing there would mix the data of both.",
        "Use another path, route or topic prefix; or continue with the checkpoint of the stream that "
        "wrote it; or delete the target. Replicas: `existing-tables: adopt`.",
    ),
    "TR-6102": Condition(
        "the target is gone",
        (StateError,),
        "The stream has written rows to it. It fills a dropped target again by itself, except when it began "
        "without a snapshot, when a former version wrote the checkpoint, or when changes wait to be merged.",
        "Restore the table, or have it filled again, as the message says: `tailrace resync PIPELINE.YAML "
        "TABLE`.",
    ),
    "TR-6103": Condition(
        "two targets are at one path",
        (StateError,),
        "The file system or catalog treats both names as equal, e.g. when they differ in case only.",
        "Route one of the tables to another name.",
    ),
    "TR-6104": Condition(
        "an existing table cannot be adopted",
        (StateError,),
        "Its columns or its key differ from those of the source.",
        "Alter the table, route the source's table to another name, or drop it.",
    ),
    "TR-6105": Condition(
        "a Kafka topic has markers of another version",
        (StateError,),
        "Another version of Tailrace wrote the markers by which the sink knows what it has written.",
        "Continue with the version that wrote it.",
    ),
    "TR-6106": Condition(
        "the keys of a replica's table that is read again are gone",
        (StateError,),
        "Somebody dropped the table of Tailrace's in which the sink notes the keys that it finds. At the end"
        " it would delete the rows of all keys that are missing there.",
        "Request another reading with `tailrace resync`, then delete the table's note as the error says.",
    ),
    "TR-6110": Condition(
        "a batch was begun with other settings of the Kafka sink",
        (StateError,),
        "Some writers have written their share of a batch, and settings that decide which writer has which "
        "changes were altered before the others had.",
        "Start with the former settings until the batch is written, then change them.",
    ),
    # ---- 70 Sinks ------------------------------------------------------------------------------------------
    "TR-7001": Condition(
        "a column of a target cannot follow its source",
        (SinkError,),
        "The source's column changed to a type that the target's column cannot be widened to.",
        "Set `on-incompatible-type: text`, so that the column becomes text; or, in Delta and Iceberg, "
        "`new-column`, so that the values go to a column of their own, e.g. `price__string`. Or drop the "
        "target and read the table again (`tailrace resync`). Or change the column's type back. The error "
        "says why a column cannot become text.",
    ),
    "TR-7002": Condition(
        "the key of a target cannot follow its source",
        (SinkError,),
        "The source's key has changed. Other tables share the target and may have the old key, or the "
        "target's server refuses another primary key, as when foreign keys depend on it.",
        "Drop what depends on the target's key; or route the table to a target of its own; or drop the "
        "target and read the table again (`tailrace resync`).",
    ),
    "TR-7003": Condition(
        "a key is too long for the target",
        (SinkError,),
        "MySQL indexes at most 3072 bytes of a key.",
        "Shorten the key's columns, or exclude the table.",
    ),
    "TR-7004": Condition(
        "names of columns differ in case only",
        (SinkError,),
        "The target treats such names as equal.",
        "Rename one of the columns at the source or by a transform, or exclude the table.",
    ),
    "TR-7005": Condition(
        "a column's name is reserved",
        (ConfigError, SinkError),
        "Tailrace adds columns of its own to the target or the rows, and one of them has this name.",
        "Rename the column at the source or by a transform, or use another mode or shape.",
    ),
    "TR-7006": Condition(
        "the target refuses a row",
        (SinkError,),
        "A value does not fit the target's column, or violates a constraint.",
        "Widen the target's column or constraint, or set `on-refused-row: quarantine`.",
    ),
    "TR-7007": Condition(
        "a disk is full",
        (TransientSinkError,),
        "The disk of the target, of Spark's temporary files or of the checkpoint.",
        "Free some space: what was not written is written again.",
    ),
    "TR-7008": Condition(
        "writing a batch failed",
        (SinkError,),
        "Spark or a library of the target reported an error of a kind that Tailrace does not know.",
        "See the cause in the detail, and the traceback in the log file.",
    ),
    "TR-7010": Condition(
        "another run of the stream writes to the target",
        (TransientSinkError,),
        "Two processes run the same pipeline, or an earlier one has not ended yet.",
        "Stop one of the processes, or give the pipelines different names.",
    ),
    "TR-7020": Condition(
        "a target has rows of another stream of the same source",
        (StateError,),
        "The source began anew, with another checkpoint, and its rows are in the target already.",
        "Continue with the former checkpoint, give the source another name, or delete the target.",
    ),
    "TR-7021": Condition(
        "a target has rows of other sources that cannot be told apart",
        (StateError,),
        "A source that is not in the pipeline file now, or runs elsewhere, has written to the target, and no "
        "`shard-column` is in its key.",
        "Route the table to another target; or delete the target, and add `shard-column` to the route.",
    ),
    "TR-7035": Condition(
        "a column of a target cannot follow its source, and `on-incompatible-type` is `fail`",
        (SinkError,),
        "As TR-7001.",
        "As TR-7001.",
    ),
    "TR-7036": Condition(
        "a column cannot have a column of its own for its new type",
        (SinkError,),
        "`on-incompatible-type` is `new-column`, and the table has a column of the name that the new one "
        "would have.",
        "Rename that column at the source or by a transform, or set `on-incompatible-type: park`.",
    ),
    "TR-7037": Condition(
        "a target lacks a column of its source's rows",
        (SinkError,),
        "A defect of Tailrace: the target was to be altered first.",
        "Report it. Nothing has been written.",
    ),
    "TR-7038": Condition(
        "a target's column can be neither renamed nor dropped",
        (SinkError,),
        "The source has renamed or dropped the column, and something in the target needs it: partitioning or "
        "a sort order (Iceberg); a CHECK constraint, a generated column, partitioning, clustering or row "
        "tracking (Delta); a view (PostgreSQL), a generated column, a constraint (databases).",
        "Remove what needs the column, then `tailrace resume`. Or set `schema.change.behavior: try_evolve`: "
        "the target keeps it then.",
    ),
    "TR-7039": Condition(
        "a target lacks a column of its source's key",
        (SinkError,),
        "The table has another key, with a column that the target does not have: "
        "`schema.change.behavior: ignore`, `include.schema.changes` or `exclude.schema.changes` keep new "
        "columns from it. So rows cannot be found by the key.",
        "Set `schema.change.behavior: evolve`, or let targets get new columns, start the pipeline again and "
        "`tailrace resume` the table. Or leave the key as it was.",
    ),
    "TR-7040": Condition(
        "a table has more refused rows than may be put into quarantine",
        (SinkError,),
        "`on-refused-row: quarantine` is set, and the target has refused more rows of the table than "
        "`max-quarantined`.",
        "`tailrace quarantine PIPELINE.YAML` shows the rows with their reasons. Correct the cause, clear the "
        "rows with `--clear TABLE`, and `tailrace resume` the table if it was parked. Or raise "
        "`max-quarantined`.",
    ),
    "TR-7061": Condition(
        "an existing table would not keep the source's values",
        (SinkError,),
        "The table was adopted, or altered by hand. The server would round, cut or pad values of a column "
        "without an error, or computes the column itself.",
        "Run the statement in the hint. Or drop the table and read the source's again (`tailrace resync`). "
        "Or leave the column out, or cast it, in a transform.",
    ),
    "TR-7062": Condition(
        "an existing table has no key",
        (SinkError,),
        "The table's primary key was dropped, or is a partial or deferrable index. Changes find their rows "
        "by it: rows would double.",
        "Run the statement in the hint.",
    ),
    "TR-7073": Condition(
        "what a sink's targets hold cannot be read",
        (SinkError, TransientSinkError),
        "`tailrace status`, and each start of a pipeline, read the targets' own records. The store does not "
        "answer, or refuses this user.",
        "Run `tailrace status` where the pipeline runs, with the same credentials; the message has the "
        "store's answer.",
    ),
    "TR-7074": Condition(
        "a sink's port does not answer",
        (PreflightError,),
        "`tailrace doctor` opens a connection to each sink. The name is unknown, a firewall drops the "
        "packets, or nothing listens.",
        "Check the address in the sink's section, and the way to it: `nc -vz HOST PORT`.",
    ),
    # ---- 71 Delta ------------------------------------------------------------------------------------------
    "TR-7101": Condition(
        "another writer changes the Delta table at the same time",
        (TransientSinkError,),
        "Several commits in a row were refused because of conflicts.",
        "Change the pipeline's tables while it is stopped. For OPTIMIZE and VACUUM set "
        "`optimize-interval` and `vacuum-interval`.",
    ),
    "TR-7102": Condition(
        "a deletion vector cannot be read",
        (StateError,),
        "The file is damaged or in a format that Delta's protocol does not define.",
        "If the file is intact: `REORG TABLE t APPLY (PURGE)` rewrites the table without deletion "
        "vectors. Otherwise restore an earlier version: `RESTORE TABLE t TO VERSION AS OF n`.",
    ),
    "TR-7103": Condition(
        "a target cannot be registered in Spark's catalog",
        (SinkError,),
        "Spark knows no catalog of that name, or the catalog does not take the table or its name.",
        "Check `sink.catalog` and the settings `spark.sql.catalog.NAME` in `pipeline.spark`, or change the "
        "`sink-table` of the table's route.",
    ),
    "TR-7104": Condition(
        "a target is not registered in Spark's catalog yet",
        (TransientSinkError,),
        "The catalog did not answer, or refused the request. The table itself is written.",
        "Nothing if it passes: the batch is tried again. Else check the catalog and the rights of its user.",
    ),
    "TR-7105": Condition(
        "Spark's catalog has another table of a target's name",
        (SinkError,),
        "A table of that name was there before, at another place.",
        "Drop it from the catalog, or change the `sink-table` of the table's route.",
    ),
    # ---- 72 Iceberg ----------------------------------------------------------------------------------------
    "TR-7201": Condition(
        "the Iceberg catalog cannot be opened",
        (SinkError,),
        "The catalog's own error is in the detail.",
        "Check `catalog` in the sink's section: it holds pyiceberg's properties of a catalog.",
    ),
    "TR-7202": Condition(
        "the Iceberg sink needs a catalog",
        (SinkError,),
        "The path is not local, where the default catalog, a SQLite file, cannot be kept.",
        "Add `catalog: {type: rest, uri: ...}` to the sink's section.",
    ),
    "TR-7203": Condition(
        "another engine has written delete files to the target",
        (SinkError,),
        "Upserts rewrite data files, which would restore the deleted rows.",
        "Apply them with that engine (`rewrite_data_files` with delete-file-threshold 1), then "
        "start the pipeline again.",
    ),
    "TR-7204": Condition(
        "a commit to Iceberg was refused",
        (TransientSinkError,),
        "Another writer committed first, or the catalog was out of reach.",
        "Nothing if it passes: the batch is written again. Let no other job write to the pipeline's tables.",
    ),
    "TR-7205": Condition(
        "data files do not have the rows that their manifests say",
        (SinkError,),
        "The files may have been overwritten or damaged.",
        "Roll back to an older snapshot: `CALL system.rollback_to_snapshot('t', id)`.",
    ),
    "TR-7206": Condition(
        "the Iceberg catalog does not answer",
        (TransientSinkError,),
        "The catalog is down, too busy, or out of this machine's reach.",
        "Nothing if it passes: the batch is written again. Else check the address in `catalog`.",
    ),
    "TR-7207": Condition(
        "the Iceberg catalog refuses a request",
        (SinkError,),
        "The token or key is wrong or has expired, its user lacks a right, or the catalog takes no such "
        "table. The catalog's own error is in the detail.",
        "Check the token or key in `catalog`, and the rights of its user, then start the pipeline again.",
    ),
    "TR-7208": Condition(
        "the Iceberg catalog takes no table of that name",
        (ConfigError,),
        "Hive and Glue have one level of namespaces; Hive takes letters, digits and `_` only.",
        "Change the `sink-table` of the table's route, or leave the table out of `tables`.",
    ),
    # ---- 73 OpenSearch -------------------------------------------------------------------------------------
    "TR-7301": Condition(
        "OpenSearch does not answer",
        (TransientSinkError,),
        "No node at the addresses of `url` answers in time, or all of them are overloaded (429) or "
        "unavailable.",
        "Check that the cluster runs, is not red, and that `url` has its addresses.",
    ),
    "TR-7302": Condition(
        "OpenSearch rejects the client",
        (SinkError,),
        "It answers 401 or 403: the user or password is wrong or missing, or the user lacks a right. A "
        "cluster also answers 403 while its indices are blocked, e.g. read-only because a disk is full.",
        "Check `user` and `password`. The user needs to create, read and write the indices and aliases of "
        "the targets and `tailrace_state`. Free disk space, and remove the block.",
    ),
    "TR-7303": Condition(
        "OpenSearch refuses a request",
        (SinkError,),
        "Its reason is in the detail: e.g. a setting in `index-settings` that it does not know, or a limit "
        "of the cluster.",
        "Remove the cause that the detail names.",
    ),
    "TR-7304": Condition(
        "OpenSearch redirects to another address",
        (SinkError,),
        "Rows and credentials are sent to the configured addresses only, so redirects are not followed.",
        "Set `url` to addresses that answer without a redirect.",
    ),
    "TR-7305": Condition(
        "OpenSearch's certificate is not trusted",
        (SinkError,),
        "It is signed by an authority that this machine does not know.",
        "Set `tls-ca` to the certificate of its authority.",
    ),
    "TR-7306": Condition(
        "an index has been deleted while it was written",
        (TransientSinkError,),
        "Somebody has deleted the index of a target, or its alias, while a batch was being written.",
        "Nothing is to be done: the batch is written again, the index is created anew and filled from the "
        "source.",
    ),
    "TR-7307": Condition(
        "the index of a target forgets deleted documents too early",
        (SinkError,),
        "`index.gc_deletes` is too short. For so long OpenSearch refuses a write that is older than the "
        "delete of its document; after that, a late write of a run that was replaced would bring it "
        "back.",
        "Set the index's `index.gc_deletes` to 15m, as the sink does for new indices.",
    ),
    "TR-7308": Condition(
        "a document of target `<target>` has a value that its column cannot have",
        (SinkError,),
        "`tailrace verify` cannot read a document: somebody other than the sink has written it.",
        "Have its table read again: `tailrace resync PIPELINE.YAML TABLE`.",
    ),
    "TR-7320": Condition(
        "target `<target>` cannot be routed by column `<column>`",
        (SinkError,),
        "The column at `sink.routing` is none of the key. OpenSearch finds a document by its id and its "
        "routing, so a change of the column would leave the old document where it is, next to the new one. "
        "In a key the change is a delete and a create.",
        "Route by a column of the key. Or make the column a part of the key: `primary-keys` of a transform "
        "of the table; the source must log whole rows then.",
    ),
    "TR-7321": Condition(
        "the documents of target `<target>` have another routing",
        (SinkError,),
        "`sink.routing` has changed since the index was made. Its documents would not be found under "
        "another routing.",
        "Set `sink.routing` back. Or delete the index and read the table again: `tailrace resync "
        "PIPELINE.YAML TABLE`.",
    ),
    "TR-7322": Condition(
        "a document of target `<target>` has a routing of its own",
        (SinkError,),
        "`tailrace verify` has found a document that is not stored by its value of the column at "
        "`sink.routing`. Somebody other than the sink has written it, and the sink does not find it.",
        "Have its table read again, which deletes it: `tailrace resync PIPELINE.YAML TABLE`.",
    ),
    "TR-7323": Condition(
        "the rows of target `<child>` cannot be nested in those of `<parent>`",
        (PreflightError, SinkError),
        "`sink.nested` needs `columns` that are of the child's key, and that name the parent's whole key "
        "with the same types; so no row can change its parent unnoticed. Parent and child have one table "
        "each, and `field` is no column of the parent.",
        "Make the columns a part of the child's key, by `primary-keys` of a transform; or leave the entry "
        "out, and search the child's own index.",
    ),
    "TR-7324": Condition(
        "the documents of target `<target>` are nested otherwise",
        (SinkError,),
        "`sink.nested` has changed since the index was made: its documents have no nested rows, or others.",
        "Set `sink.nested` back. Or delete the index and read the table again: `tailrace resync "
        "PIPELINE.YAML TABLE`.",
    ),
    "TR-7325": Condition(
        "a row of target `<parent>` has too many rows of `<child>` to nest",
        (SinkError,),
        "A document is written as a whole whenever one of its nested rows changes, so their number is "
        "limited by `sink.max-nested`.",
        "Raise `sink.max-nested` (at most 10000). Or leave the entry out of `sink.nested`, and search the "
        "child's own index.",
    ),
    # ---- 74 Kafka ------------------------------------------------------------------------------------------
    "TR-7401": Condition(
        "no Kafka broker's host name resolves",
        (SinkError,),
        "Names in `bootstrap-servers`, or those that the brokers advertise, are unknown on this machine.",
        "Check `bootstrap-servers` and the brokers' advertised listeners.",
    ),
    "TR-7402": Condition(
        "the Kafka brokers refuse the credentials",
        (SinkError,),
        "SASL authentication failed.",
        "Check `sasl.mechanism`, `sasl.username` and `sasl.password` in `sink.properties`.",
    ),
    "TR-7403": Condition(
        "no TLS connection to the Kafka brokers is possible",
        (SinkError,),
        "The certificate is not trusted, or the listener does not use TLS.",
        "Check `security.protocol` and the `ssl.*` settings in `sink.properties`, e.g. `ssl.ca.location`.",
    ),
    "TR-7404": Condition(
        "a setting of the Kafka client is wrong",
        (SinkError,),
        "librdkafka refuses a property. Its text is in the detail.",
        "Check `sink.properties`.",
    ),
    "TR-7405": Condition(
        "the Kafka brokers do not allow an operation",
        (SinkError,),
        "The user lacks an ACL to write to a topic, to use a transactional id or to write idempotently.",
        "`kafka-acls.sh --add --allow-principal User:... --operation Write --operation Describe "
        "--topic ...`; the same for `--transactional-id tailrace. --resource-pattern-type prefixed`.",
    ),
    "TR-7406": Condition(
        "the Kafka brokers do not allow transactions this long",
        (SinkError,),
        "`transaction.timeout.ms` exceeds the brokers' `transaction.max.timeout.ms`.",
        "Set `transaction.timeout.ms` in `sink.properties` to the brokers' limit or less.",
    ),
    "TR-7407": Condition(
        "a message is larger than its topic allows",
        (SinkError,),
        "The topic's `max.message.bytes` is smaller than the row's message.",
        "`kafka-configs.sh --alter --entity-type topics --entity-name ... --add-config "
        "max.message.bytes=...`, or set `on-refused-row: quarantine`.",
    ),
    "TR-7408": Condition(
        "a Kafka topic cannot be created",
        (SinkError,),
        "Its name, replication factor or configuration is not allowed on this cluster, or a policy "
        "forbids it.",
        "Route the table to another name, correct `topic-replication` or `topic-config`, or create "
        "the topic by hand.",
    ),
    "TR-7409": Condition(
        "the Kafka brokers are too old",
        (SinkError,),
        "Transactions need brokers of version 2.5 or newer.",
        "Upgrade the brokers, or set `delivery: at-least-once`.",
    ),
    "TR-7410": Condition(
        "writing to Kafka failed",
        (TransientSinkError,),
        "The brokers are out of reach, or reported an error that may pass.",
        "Nothing if it passes: the batch is written again. Otherwise check the brokers, and that "
        "`security.protocol` fits their listener.",
    ),
    "TR-7411": Condition(
        "a Kafka transaction exceeded its time limit",
        (TransientSinkError,),
        "The brokers or the network are slow, or a quota holds the client back.",
        "Raise `transaction.timeout.ms` in `sink.properties`, or make batches smaller: "
        "`source.max-bytes-per-trigger`.",
    ),
    "TR-7412": Condition(
        "the markers in Kafka cannot be read in time",
        (TransientSinkError,),
        "The sink reads them at the start to know what it has written, and the brokers did not answer.",
        "Nothing if it passes. Otherwise check the brokers.",
    ),
    "TR-7413": Condition(
        "the batch was begun by another number of writers",
        (TransientSinkError,),
        "`parallelism` changed, or the cluster has other executors, since the last start.",
        "Nothing if it passes: after the restart the sink reads the markers again.",
    ),
    # ---- 75 Schema registry --------------------------------------------------------------------------------
    "TR-7501": Condition(
        "the schema registry does not answer",
        (TransientSinkError,),
        "It is not running, or the address is wrong.",
        "Check that it runs and that `schema-registry-url` is its address.",
    ),
    "TR-7502": Condition(
        "the schema registry redirects to another address",
        (SinkError,),
        "Credentials are sent to the configured address only, so redirects are not followed.",
        "Set `schema-registry-url` to the address that answers without a redirect.",
    ),
    "TR-7503": Condition(
        "the new schema is not compatible with the old one",
        (SinkError,),
        "The subject's compatibility level forbids the change of the table.",
        "Change the table so that readers of the old schema can continue, or allow the change: `curl "
        "-X PUT -H 'Content-Type: application/json' -d '{\"compatibility\": \"NONE\"}' "
        "REGISTRY/config/SUBJECT`.",
    ),
    "TR-7504": Condition(
        "the schema registry does not allow writing",
        (SinkError,),
        "The user or token may not register schemas.",
        "Check `schema-registry-user` and `schema-registry-password`, and the user's rights on subjects.",
    ),
    "TR-7505": Condition(
        "the schema is not registered",
        (SinkError,),
        "`schema-registry-register` is false, and nobody has registered it.",
        "Register the schema, or set `schema-registry-register: true`.",
    ),
    "TR-7506": Condition(
        "the address has no Confluent-compatible interface",
        (SinkError,),
        "The registry answers 404.",
        "Set `schema-registry-url` to the interface's base path, e.g. Apicurio's `.../apis/ccompat/v7`.",
    ),
    "TR-7507": Condition(
        "the schema registry refuses a schema",
        (SinkError,),
        "The registry's answer is in the detail.",
        "See the registry's log.",
    ),
    "TR-7508": Condition(
        "the schema registry's certificate is not trusted",
        (SinkError,),
        "It is signed by an authority that this machine does not know.",
        "Set `schema-registry-ca` to the certificate of its authority.",
    ),
    "TR-7509": Condition(
        "the schema registry refuses the credentials",
        (SinkError,),
        "It answers 401 or 403: the user, password or token is wrong or missing.",
        "Check `schema-registry-user` and `schema-registry-password`, or `schema-registry-token`.",
    ),
    # ---- 76 Messages ---------------------------------------------------------------------------------------
    "TR-7601": Condition(
        "logical messages can only be written in JSON",
        (SinkError,),
        "Their envelope differs from that of rows, and has no Avro or Protobuf schema.",
        "Set `key-format: json` and `value-format: debezium-json`, or omit `message.prefix.*`.",
    ),
    "TR-7602": Condition(
        "a schema has no id",
        (SinkError,),
        "A message in a registry's format begins with the id of its schema, which was not registered.",
        "Report a bug, with the traceback in the log file.",
    ),
    "TR-7603": Condition(
        "two columns get the same name",
        (SinkError,),
        "Avro and Protobuf permit letters, digits and `_` in names; two of the table's names become equal.",
        "Rename or drop one of them with a transform, or use JSON.",
    ),
    "TR-7604": Condition(
        "a value or type cannot be encoded in the chosen format",
        (SinkError,),
        "The combination of `value-format`, `time-precision-mode` and `decimal-handling-mode` has no "
        "form for it.",
        "Use the mode that the hint names, or `value-format: debezium-json`, or drop the column with "
        "a transform. If it is a value: `on-refused-row: quarantine` puts its rows aside.",
    ),
    "TR-7605": Condition(
        "messages of one table need more than 2 GiB",
        (SinkError,),
        "Some thousand rows are encoded at a time, and these are very large.",
        "Exclude the table's largest columns with a transform.",
    ),
    "TR-7606": Condition(
        "a table is no outbox",
        (SinkError,),
        "`outbox` of the Kafka sink names columns that the table, or its log, does not have.",
        "Name the table's columns in the section `outbox`, or let its `tables` match outboxes alone.",
    ),
    "TR-7607": Condition(
        "a row names no topic",
        (SinkError,),
        "The column that decides the topic is empty, or has characters that Kafka does not allow.",
        "Correct the application that writes the row; or set `route-topic-regex` of the section `outbox`, or "
        "`on-refused-row: quarantine`, which puts such rows aside.",
    ),
    "TR-7608": Condition(
        "a row of an outbox was updated",
        (SinkError,),
        "Rows of an outbox are inserted, and deleted later; `table-op-invalid-behavior: fatal` ends the "
        "pipeline at an update.",
        "Correct the application, then set `table-op-invalid-behavior: warn`, which leaves updates out.",
    ),
    "TR-7609": Condition(
        "rows name a topic that has another purpose",
        (SinkError,),
        "A row of an outbox, or of a table with `topic-by`, names a topic that is a table's, or that the "
        "sink itself needs.",
        "Set `route-topic-replacement` of the section `outbox` so that its topics have names of their own; "
        "with `topic-by`, route the table to another target.",
    ),
    "TR-7610": Condition(
        "message keys, partitions or topics cannot be made of the columns that are named",
        (SinkError,),
        "`message-key-columns`, `partition-by` or `topic-by` names a column that the table does not have, or "
        "one of the last two a column that is not in the message key, so that a key would lose its order; or "
        "`topic-by` names several columns, or one that is neither text nor an integer.",
        "Correct the setting; add columns of `partition-by` and `topic-by` to `message-key-columns`, beside "
        "those of the key.",
    ),
    "TR-7611": Condition(
        "sinks are parked; everything else is written",
        (TablesParkedError,),
        "Each of these sinks has `on-error: park` and met an error. The run has written everything to the "
        "others.",
        "See the reason in the detail, fix it, then `tailrace resume PIPELINE.YAML --sink NAME`.",
    ),
    "TR-7612": Condition(
        "the list of parked sinks cannot be read",
        (StateError,),
        "`_tailrace/parked_sinks.json` below the checkpoint was changed, or is of a newer version.",
        "Remove the file, then have the tables of all sinks read again: `tailrace resync PIPELINE.YAML "
        "TABLE...`.",
    ),
    "TR-7613": Condition(
        "a sink to resume is unknown or not parked",
        (ConfigError,),
        "`tailrace resume --sink` names a sink that the pipeline does not have, or that flows.",
        "`tailrace status PIPELINE.YAML` names the sinks and says which are parked.",
    ),
    "TR-7614": Condition(
        "a column cannot be added to flat rows",
        (SinkError,),
        "`add-fields` or `add-headers` names a column of `before` or `after` that is a list or a spatial "
        "value. Debezium's transform can add values without fields of their own only.",
        "Leave the item out, or rename the column by a transform of the table.",
    ),
    "TR-7615": Condition(
        "a row of an outbox names no partition of its topic",
        (SinkError,),
        "`table-fields-additional-placement` takes the partition of a message from a column. It must hold "
        "integers of 32 bits, each of them the number of a partition that the topic has, or NULL.",
        "Correct the application, name another column, or add partitions to the topic.",
    ),
    # ---- 77 ClickHouse -------------------------------------------------------------------------------------
    "TR-7701": Condition(
        "ClickHouse does not answer",
        (TransientSinkError,),
        "The server at `url` does not answer in time, or cannot do the work at present: it lacks memory or "
        "room, its tables have too many parts, or it is overloaded.",
        "Check that the server runs, has room, and that `url` is its HTTP interface.",
    ),
    "TR-7702": Condition(
        "ClickHouse rejects the user",
        (SinkError,),
        "The user or password is wrong or missing, or the user lacks a right.",
        "Check `user` and `password`. The user needs to create databases, to create, alter, read and write "
        "the targets' tables and `_tailrace_state`, and to read the database `system`.",
    ),
    "TR-7703": Condition(
        "ClickHouse refuses a statement",
        (SinkError,),
        "Its reason is in the detail. Of an INSERT there is the code alone: the reason may have values.",
        "Remove the cause that the detail names.",
    ),
    "TR-7704": Condition(
        "a table has been dropped while it was written",
        (TransientSinkError,),
        "Somebody has dropped the table of a target, or its database, while a batch was being written.",
        "Nothing is to be done: the batch is written again, the table is created anew and filled from the "
        "source.",
    ),
    "TR-7705": Condition(
        "target `<target>` is a table of engine <engine>",
        (SinkError,),
        "The server makes another engine of ReplacingMergeTree, as replicated databases and ClickHouse Cloud "
        "do. Its replicas may answer with older rows than the ones just written, and then a target would be "
        "wrong.",
        "Write to a server, and a database, where ReplacingMergeTree stays what it is.",
    ),
    "TR-7706": Condition(
        "column `<column>` of target `<target>` was altered",
        (SinkError,),
        "Somebody has altered or dropped a column of the target's table. ClickHouse converts values to the "
        "type that a column has, and may write others, or NULL.",
        "Alter it back; or drop the table, and have the source's read again: `tailrace resync`. Further "
        "columns, codecs and LowCardinality do no harm.",
    ),
    "TR-7707": Condition(
        "change log `<target>` lacks changes that were written",
        (TransientSinkError,),
        "After a batch was written, the table has fewer rows of it than the batch has changes: something "
        "deletes rows (a TTL, a mutation), or a replica answers that does not have them yet.",
        "The batch is written again. If that does not help, because rows of it were deleted, let the server "
        "forget the blocks: `ALTER TABLE ... MODIFY SETTING non_replicated_deduplication_window = 0`, then "
        "the same with 10000.",
    ),
    "TR-7708": Condition(
        "change log `<target>` has changes twice",
        (StateError,),
        "After a batch was written, the table has more rows of it than the batch has changes: the server has "
        "forgotten blocks that it was to remember, or somebody has copied rows.",
        "Run the statements of the hint, which delete the rows of this batch alone, then start the pipeline: "
        "it writes the batch again.",
    ),
    "TR-7709": Condition(
        "target `<target>` cannot be sorted, or partitioned, by <columns>",
        (SinkError,),
        "ClickHouse replaces a row by another one with the same values of the columns that the table is "
        "sorted by, in the same partition. With other columns than the key's, old rows would stay.",
        "List the columns of the key at `order-by`, in any order, and use no others in `partition-by`.",
    ),
    "TR-7710": Condition(
        "change log `<target>` remembers too few blocks",
        (SinkError,),
        "The table's `non_replicated_deduplication_window` (of replicas: `replicated_deduplication_window`) "
        "is smaller than a batch's number of blocks: a batch that comes again could be there twice.",
        "Run the statement of the hint, which sets a larger one.",
    ),
    "TR-7711": Condition(
        "ClickHouse would insert rows asynchronously",
        (SinkError,),
        "The server keeps `async_insert = 1` for this user, whatever the sink asks for. Such an INSERT "
        "returns before its rows are there.",
        "Allow the user to change async_insert, or set it to 0 in the user's profile.",
    ),
    # ---- 78 RocketMQ and other message systems -------------------------------------------------------------
    "TR-7801": Condition(
        "RocketMQ does not answer",
        (TransientSinkError,),
        "A name server or broker is down or cannot be reached, or reports an error of its own.",
        "Check that name servers and brokers run. Tasks connect to the addresses that brokers give the name "
        "servers (`brokerIP1`): they must be reachable from there.",
    ),
    "TR-7802": Condition(
        "the certificate of RocketMQ is not trusted",
        (SinkError,),
        "It is signed by another authority, has expired, or names another host than the one connected to.",
        "Set `tls-ca` to the certificate of the servers' authority.",
    ),
    "TR-7803": Condition(
        "RocketMQ does not allow something",
        (SinkError,),
        "The access key is unknown, its secret is another one, or its user lacks a right; or the topic may "
        "not be written.",
        "Check `access-key` and `secret-key`. The user needs Pub and Sub on the topics, Sub on the group "
        "`TOOLS_CONSUMER`, and Create on the topics unless they exist.",
    ),
    "TR-7804": Condition(
        "RocketMQ has not made messages durable",
        (TransientSinkError,),
        "The broker has stored them, but its disk or its slave was too slow, and its settings promise both.",
        "See to the broker's disk and to its slave. The batch is tried again, and not written twice.",
    ),
    "TR-7805": Condition(
        "a message is larger than RocketMQ takes",
        (SinkError,),
        "Brokers take `maxMessageSize`, 4 MiB by default, and keys of 16 KB.",
        "Leave large columns out (`column.exclude.list`), or raise `max-message-bytes` and the brokers' "
        "`maxMessageSize`.",
    ),
    "TR-7806": Condition(
        "the topic of a table has too long a name",
        (ConfigError,),
        "RocketMQ allows 127 characters for prefix, database and table together.",
        "Route the table to another name, or shorten `topic-prefix`.",
    ),
    "TR-7807": Condition(
        "RocketMQ's brokers are too busy",
        (TransientSinkError,),
        "A broker has refused messages for some seconds to protect itself.",
        "See the broker's log. Make batches smaller: `max-bytes-per-trigger`.",
    ),
    "TR-7808": Condition(
        "a topic of RocketMQ has been deleted while it was written",
        (TransientSinkError,),
        "Somebody has deleted the topic while a batch was being written.",
        "Nothing is to be done: the batch is written again, the topic is created anew and filled from the "
        "source.",
    ),
    "TR-7811": Condition(
        "Redis does not take messages",
        (TransientSinkError,),
        "The server does not answer, is loading its data, is a replica, or has no memory left.",
        "Check that the server at `url` runs. Give it memory, or limit streams: `max-entries`.",
    ),
    "TR-7812": Condition(
        "Redis rejects the client",
        (SinkError,),
        "The user or password is wrong or missing, or the user may not run a command.",
        "Check `user` and `password`. The user needs the commands of streams, sets, hashes and scripts on "
        "the keys that begin with the topic prefix, with `{` before it, too.",
    ),
    "TR-7813": Condition(
        "Redis refuses a command",
        (SinkError,),
        "The server is too old, is one of a cluster of several, or somebody else uses a key of the sink.",
        "Remove the cause that the detail names.",
    ),
    "TR-7814": Condition(
        "a stream has been deleted while it was written",
        (TransientSinkError,),
        "Somebody has deleted a stream in Redis while a batch was being written.",
        "Nothing is to be done: the batch is written again, the stream is created anew and filled from the "
        "source.",
    ),
    "TR-7815": Condition(
        "the certificate of Redis is not trusted",
        (SinkError,),
        "It is signed by another authority, has expired, or names another host.",
        "Set `tls-ca` to the certificate of the server's authority.",
    ),
    "TR-7821": Condition(
        "the webhook takes no messages",
        (TransientSinkError,),
        "Its server cannot be reached, does not answer in time, or answers 408, 425, 429 or 500 and above, "
        "for some 20 seconds.",
        "Check that the server runs, and that it answers within `timeout` seconds.",
    ),
    "TR-7822": Condition(
        "the webhook refuses messages",
        (SinkError,),
        "It has answered with a status that says that the request will never succeed.",
        "See the server's log. Check `url`, `headers` and `secret`.",
    ),
    "TR-7823": Condition(
        "the webhook redirects to another address",
        (SinkError,),
        "Redirects are not followed: messages and secrets go to the address of the pipeline file only.",
        "Set `url` to the address that answers without a redirect.",
    ),
    "TR-7824": Condition(
        "the certificate of the webhook is not trusted",
        (SinkError,),
        "It is signed by another authority, has expired, or names another host.",
        "Set `tls-ca` to the certificate of the server's authority.",
    ),
    "TR-7831": Condition(
        "NATS does not take messages",
        (TransientSinkError,),
        "No server answers, it has no JetStream, or the stream is gone or cannot write.",
        "Check that the servers at `url` run with JetStream. A stream that was deleted is created again.",
    ),
    "TR-7832": Condition(
        "NATS rejects the client",
        (SinkError,),
        "The user, password or token is wrong or missing, or the user lacks a right.",
        "Check `user`, `password` and `token`. The user publishes to the subjects of the topic prefix and to "
        "`$JS.API.STREAM.>`, and subscribes to `_INBOX.>`.",
    ),
    "TR-7833": Condition(
        "NATS refuses a request",
        (SinkError,),
        "The stream's limits forbid it, or another stream has the subjects of the topic prefix.",
        "Remove the cause that the detail names.",
    ),
    "TR-7834": Condition(
        "the certificate of NATS is not trusted",
        (SinkError,),
        "It is signed by another authority, has expired, or names another host.",
        "Set `tls-ca` to the certificate of the servers' authority.",
    ),
    "TR-7835": Condition(
        "a message is larger than NATS takes",
        (SinkError,),
        "Servers take `max_payload`, 1 MiB by default.",
        "Leave large columns out (`column.exclude.list`), or raise `max_payload` of the servers.",
    ),
    "TR-7841": Condition(
        "RabbitMQ does not take messages",
        (TransientSinkError,),
        "No server answers, it stops, too many connections are open, or the exchange was deleted while it "
        "was written.",
        "Check that the servers at `url` run, and that it is their AMQP port. An exchange that was deleted "
        "is created again.",
    ),
    "TR-7842": Condition(
        "RabbitMQ rejects the client",
        (SinkError,),
        "The user, password or virtual host is wrong, or the user lacks a right.",
        "Check `user`, `password` and `vhost`. The user needs the right to write to the exchange that is "
        "named as the topic prefix, and every right to the exchange and the queues that the sink creates.",
    ),
    "TR-7843": Condition(
        "RabbitMQ refuses a request",
        (SinkError,),
        "An exchange or queue has other properties than the request needs.",
        "Remove the cause that the detail names.",
    ),
    "TR-7844": Condition(
        "the certificate of RabbitMQ is not trusted",
        (SinkError,),
        "It is signed by another authority, has expired, or names another host.",
        "Set `tls-ca` to the certificate of the servers' authority.",
    ),
    "TR-7845": Condition(
        "a message is larger than RabbitMQ takes",
        (SinkError,),
        "Servers take `max_message_size`, 16 MiB by default.",
        "Leave large columns out (`column.exclude.list`), or raise `max_message_size` of the servers.",
    ),
    "TR-7846": Condition(
        "no queue of RabbitMQ takes the messages of a table",
        (SinkError, TransientSinkError),
        "No queue is bound to the exchange for the routing key. RabbitMQ would drop the messages. With "
        "`queue-type` the sink binds its queue again.",
        "Bind a durable queue to the exchange with that routing key, or with `#` for all, or set "
        "`queue-type`.",
    ),
    "TR-7847": Condition(
        "RabbitMQ blocks whoever publishes",
        (TransientSinkError,),
        "The server has an alarm: its memory or disk space is short.",
        "Free memory or disk space, or raise the limits (`vm_memory_high_watermark`, `disk_free_limit`). The "
        "batch is tried again.",
    ),
    "TR-7848": Condition(
        "a queue of RabbitMQ has refused messages",
        (TransientSinkError,),
        "It is full, with `x-overflow: reject-publish`, or most servers of a quorum queue are away.",
        "Nothing is to be done once consumers catch up, or the servers are back: the batch is tried again.",
    ),
    "TR-7849": Condition(
        "the name of a target is too long for RabbitMQ",
        (ConfigError,),
        "Topic prefix and target have more than 255 bytes together.",
        "Route the table to a shorter name, or shorten `topic-prefix`.",
    ),
    # ---- 79 DuckDB -----------------------------------------------------------------------------------------
    "TR-7900": Condition(
        "DuckDB cannot open the database",
        (SinkError,),
        "The file is none of DuckDB, was written by a later version, or its directory cannot be written.",
        "See the detail; check `database` in the sink's section.",
    ),
    "TR-7901": Condition(
        "the database is open in another program",
        (TransientSinkError,),
        "DuckDB lets one program in that writes, or several that read.",
        "Close it there: the batch is written then. Readers that must stay can read a copy.",
    ),
    "TR-7902": Condition(
        "DuckDB cannot write a batch",
        (SinkError,),
        "DuckDB's own error is in the detail, without its text where that quotes values.",
        "If the disk is full, free some space. Else report the detail. Nothing of the batch is written.",
    ),
    "TR-7903": Condition(
        "the database was written by a later Tailrace",
        (StateError,),
        "What the sink notes in `_tailrace.targets` has a form that this version does not know.",
        "Install that version again.",
    ),
    "TR-7930": Condition(
        "the Hive metastore lets no column of an Iceberg table change its place or type",
        (SinkError,),
        "By default it compares a table's columns with the former ones, place by place, and refuses a change "
        "after which a place has another type: when a column before others was dropped, for example.",
        "Set `hive.metastore.disallow.incompatible.col.type.changes` to `false` in the metastore, as all "
        "writers of Iceberg tables need, then start the pipeline again.",
    ),
    # ---- 80 Running ----------------------------------------------------------------------------------------
    "TR-8001": Condition(
        "Spark's JVM has ended",
        (SourceError, TransientSourceError),
        "It was killed, often by the system for lack of memory, or crashed.",
        "See the log file and the system's log (`dmesg`). Give the machine more memory, or lower "
        "`spark.driver.memory`.",
    ),
    "TR-8002": Condition(
        "a process of the stream was lost",
        (TransientSourceError,),
        "Spark lost an executor or a Python worker. The stream is restarted.",
        "Nothing if it passes. Otherwise see the log file: often there is too little memory.",
    ),
    "TR-8003": Condition(
        "the stream failed",
        (SourceError,),
        "Spark reported an error of a kind that Tailrace does not know.",
        "See the cause in the detail, and the traceback in the log file.",
    ),
    "TR-8004": Condition(
        "the log reader is not in the expected state",
        (StateError,),
        "An internal contradiction.",
        "Report a bug, with the traceback in the log file.",
    ),
    "TR-8040": Condition(
        "a table has something that is not foreseen",
        (SourceError, SinkError),
        "A bug: code that works on one table met something of it that it does not know. The table is parked, "
        "the others go on.",
        "Report it, with the traceback in the log file. `tailrace resume` goes on with the table.",
    ),
    "TR-8041": Condition(
        "tables are parked; everything else is read",
        (TablesParkedError,),
        "Each of these tables met an error that concerned it alone. The run has read all other tables.",
        "See the reason of each table in the detail, fix it, then `tailrace resume PIPELINE.YAML TABLE...`.",
    ),
    # ---- 81 Verification -----------------------------------------------------------------------------------
    "TR-8101": Condition(
        "there is nothing to compare",
        (StateError, ConfigError),
        "No batch is committed yet, none of the tables can be compared, or no table matches a pattern.",
        "Run the pipeline until its first batch is committed: `tailrace run PIPELINE.YAML`.",
    ),
    "TR-8102": Condition(
        "no table of the pipeline matches",
        (ConfigError,),
        "The pattern given to `tailrace verify` fits none of the targets.",
        "Use a name from the list in the detail.",
    ),
    "TR-8103": Condition(
        "the sink cannot be verified",
        (ConfigError,),
        "`tailrace verify` supports Delta, Iceberg, DuckDB, OpenSearch, ClickHouse, and replicas of MySQL, "
        "MariaDB and PostgreSQL.",
        "Verify one of these sinks.",
    ),
    "TR-8104": Condition(
        "a target is being written",
        (StateError,),
        "Replicas, OpenSearch and ClickHouse have no earlier state that could be compared with the "
        "checkpoint, and the pipeline was within a batch all the time, or was killed within one.",
        "Verify again when the batch is written. If the pipeline does not run, start it: it finishes the "
        "batch.",
    ),
    "TR-8105": Condition(
        "a column cannot be compared",
        (SchemaMismatchError,),
        "The source's values no longer fit the type of the target's column.",
        "Verify again after the pipeline has processed the column's change.",
    ),
    "TR-8106": Condition(
        "the target no longer has the version to compare",
        (StateError,),
        "The Delta table's history was cleaned up.",
        "Run the pipeline until its next batch is committed, then verify again.",
    ),
    "TR-8107": Condition(
        "a data file has dates of the Julian calendar",
        (StateError,),
        "The Delta table has a file of Spark 2, or of Spark 3 in its legacy mode: in it, days before "
        "1582-10-15 are other ones.",
        "Rewrite the table's files: `OPTIMIZE`, or `REORG TABLE ... APPLY (PURGE)`.",
    ),
    "TR-8108": Condition(
        "a target cannot be compared in part",
        (ConfigError,),
        "`--sample` and `--key-range` of `tailrace verify` choose ranges of whole numbers, and the target "
        "holds the key's first column in another type.",
        "Compare it as a whole, without these options.",
    ),
    "TR-8109": Condition(
        "an Iceberg table has equality deletes",
        (StateError,),
        "Another program has deleted rows by their values, and pyiceberg does not read such deletes: "
        "neither `tailrace verify` nor the sink knows which rows are there.",
        "Rewrite the table's data files by a program that does, such as Spark, and have nothing but the "
        "pipeline write the table.",
    ),
    "TR-8110": Condition(
        "a target differs from its table",
        (StateError,),
        "A comparison of `pipeline.verify`, or one that a signal asked for, has found it. Somebody wrote to "
        "the target, or rows changed at the source without being logged: a foreign key with CASCADE, "
        "`sql_log_bin = 0`. With `on-differences: fail` it ends the pipeline.",
        "See which rows: `tailrace verify PIPELINE.YAML`. Correct them: `tailrace repair PIPELINE.YAML`, or "
        "have it done each time: `pipeline.verify.repair: schedule`.",
    ),
    "TR-8111": Condition(
        "there is no comparison to go on with",
        (StateError,),
        "`tailrace verify --resume` goes on with a comparison of whole tables that was interrupted. The last "
        "one came to its end, or was of another checkpoint.",
        "Compare anew: `tailrace verify PIPELINE.YAML`.",
    ),
    "TR-8112": Condition(
        "targets of the sink are not compared in parts",
        (ConfigError,),
        "`tailrace verify --in-parts` compares large tables part by part, each as of a batch of its own. "
        "Delta and Iceberg tables do not need that: they can be read as of one batch, also after an "
        "interruption. An index of OpenSearch is read whole each time.",
        "Leave out `--in-parts`.",
    ),
    "TR-8113": Condition(
        "the log of an interrupted comparison is gone",
        (StateError,),
        "Rows are read as of the batch that was compared when the interruption came: the server must have "
        "its log from there on. PostgreSQL keeps it while a comparison runs, and otherwise only from "
        "where the pipeline is.",
        "Compare anew, without `--resume`.",
    ),
    "TR-8146": Condition(
        "a table could not be compared after its repair",
        (StateError,),
        "It was parked or dropped while `tailrace repair` waited for the pipeline.",
        "Do what the message's detail says, then repeat `tailrace repair PIPELINE.YAML`.",
    ),
    # ---- 82 Log archive ------------------------------------------------------------------------------------
    "TR-8201": Condition(
        "the address of the archive is not understood",
        (SourceError,),
        "It is neither a path nor a URI of an object store that Arrow knows.",
        "Give a directory, or `s3://bucket/path`, `gs://...`, `abfs://...` or `hdfs://...`.",
    ),
    "TR-8202": Condition(
        "the archive cannot be reached",
        (TransientSourceError,),
        "A file of it could not be read or written: the disk, the network or a permission.",
        "See the detail. Object stores take their credentials from the environment, for example "
        "`AWS_ACCESS_KEY_ID`.",
    ),
    "TR-8203": Condition(
        "another process writes to the archive",
        (StateError,),
        "`tailrace archive` runs twice for one archive.",
        "Stop one of them: an archive has one writer, whatever number of pipelines reads it.",
    ),
    "TR-8204": Condition(
        "the archive is damaged",
        (StateError,),
        "A file of it is missing, was cut off, changed or exchanged: its digest is not that of the manifest, "
        "or it does not follow the one before it.",
        "Restore the file from a copy of the archive. What cannot be restored is a gap: begin a new archive.",
    ),
    "TR-8205": Condition(
        "the key of the archive is malformed",
        (ConfigError,),
        "`archiveKey` is not 32 bytes in base64 or hex.",
        "`openssl rand -base64 32 > archive.key`, and `archiveKey: ${file:archive.key}`.",
    ),
    "TR-8206": Condition(
        "the key does not fit the archive",
        (ConfigError, StateError),
        "The archive is encrypted and there is no key, the key is another one, or the archive is not "
        "encrypted.",
        "Set `archiveKey` to the key that the archive was written with, or remove it.",
    ),
    "TR-8207": Condition(
        "there is no archive that this version can read",
        (StateError,),
        "The directory holds no archive, or one of another version.",
        "Check the address. `tailrace archive PIPELINE.YAML --to URL` begins an archive.",
    ),
    "TR-8208": Condition(
        "the server no longer has the log from the archive's end on",
        (PositionLostError,),
        "`tailrace archive` was stopped for longer than the server keeps its log, or the log began anew.",
        "`tailrace archive ... --allow-gap` goes on with the oldest log file that the server has. Streams "
        "that need what is between end with an error.",
    ),
    "TR-8209": Condition(
        "the archive cannot go on in the log of another server",
        (StateError,),
        "Another server answers at the address, and there are no GTIDs by which the point could be found.",
        "Begin another archive: `--to` another directory.",
    ),
    "TR-8210": Condition(
        "the database's tables cannot be restored from an archive",
        (ConfigError,),
        "`tailrace archive --base` and `tailrace restore` are for MySQL, MariaDB and PostgreSQL.",
        "Restore it by the database's own means: Oracle by RMAN.",
    ),
    "TR-8211": Condition(
        "the table cannot be restored as of that time",
        (SourceError,),
        "Its rows of now cannot be rewound, since a schema change lies between, or it is gone; and the "
        "archive has no base from which the rows could be made: one without a schema change up to the time. "
        "PostgreSQL's log has no schema changes: there, another base behind the time, what the archiver saw "
        "then, or the table as it is now, must show that the table was the same since the base.",
        "If the detail says up to when the table was the same, restore it as of that time. "
        "`tailrace archive PIPELINE.YAML --base` keeps the captured tables; take one regularly, and behind "
        "each schema change.",
    ),
    "TR-8212": Condition(
        "the table was altered while it was read",
        (TransientSourceError,),
        "A schema change came while its rows were read, to be restored or to be kept as a base.",
        "Repeat the command.",
    ),
    "TR-8213": Condition(
        "the archive has nothing of the server's log",
        (),
        "The archive of the option `archive` is empty, or of another server.",
        "Start `tailrace archive PIPELINE.YAML`, or correct the address.",
    ),
    "TR-8214": Condition(
        "the archive is of another kind of database",
        (ConfigError,),
        "MySQL and MariaDB have one kind of log, PostgreSQL another.",
        "Give the archive of this server.",
    ),
    "TR-8215": Condition(
        "the archive is of another database or publication",
        (ConfigError,),
        "An archive of PostgreSQL's log has the changes of one database that one publication publishes. The "
        "publication also decides how changes are numbered: with another one, streams would not be the same.",
        "Begin another archive for it, or let the pipelines share a publication: `publicationName`.",
    ),
    "TR-8216": Condition(
        "there is no publication to archive",
        (ConfigError,),
        "`tailrace archive` publishes the captured tables as a stream does, and none of them can be; or "
        "`--base` finds none of them published.",
        "Correct `tables`, or create the publication: `CREATE PUBLICATION ... FOR TABLE ...`.",
    ),
    "TR-8217": Condition(
        "the archive does not have the time at which to start, or as of which to restore",
        (ConfigError,),
        "It began later, has expired that time, has a gap behind it, or has nothing of then or later yet.",
        "Set `startingPosition` to a time that it has, to `earliest` or `latest`; or let `tailrace archive` "
        "catch up. Restore a table as of a time that it has.",
    ),
    "TR-8218": Condition(
        "the database's log cannot be archived",
        (ConfigError,),
        "`tailrace archive` keeps the logs of MySQL, MariaDB and PostgreSQL.",
        "Keep the server's own archived log for as long as streams may need it.",
    ),
    "TR-8219": Condition(
        "the log does not lead on from the kept rows",
        (SourceError,),
        "It changes a row that the base does not have, or creates one that it has. Changes are missing, or "
        "rows have changed without an entry in the log.",
        "Take another base: `tailrace archive PIPELINE.YAML --base`. Restore the table as of an earlier "
        "time, or from an earlier base.",
    ),
    # ---- 84 Control plane ----------------------------------------------------------------------------------
    "TR-8401": Condition(
        "the database of the control plane does not answer",
        (TransientControlError,),
        "The database that `tailrace serve --database` names is out of reach, restarting, or locked for "
        "too long.",
        "Start it, or see to the network. Servers try again by themselves. Pipelines whose lease ends "
        "meanwhile are stopped, and go on once it answers.",
    ),
    "TR-8402": Condition(
        "the database of the control plane refuses a statement",
        (StateError,),
        "The user of that database lacks a right, or somebody changed its tables.",
        "`GRANT ALL` on that database to its user; restore tables that were changed from a backup.",
    ),
    "TR-8403": Condition(
        "the URL of the control plane's database holds a password",
        (ConfigError,),
        "An address is printed in messages and logs.",
        "Give the password by `--database-password '${env:NAME}'`.",
    ),
    "TR-8404": Condition(
        "the URL of the control plane's database is wrong",
        (ConfigError,),
        "It is no URL, names another kind of database, or a file that cannot be created.",
        "`sqlite:////PATH/TO/FILE`, `postgresql://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE`.",
    ),
    "TR-8405": Condition(
        "the database of the control plane is of a newer version of Tailrace",
        (StateError,),
        "A newer server has changed its tables.",
        "Install the version that the other servers have; or restore the backup from before the upgrade.",
    ),
    "TR-8406": Condition(
        "a cancelled subscription stays cancelled",
        (StateError,),
        "Somebody asked it to run or to pause.",
        "Create another subscription, with a checkpoint and targets of its own.",
    ),
    "TR-8407": Condition(
        "only a failed subscription can be tried again",
        (StateError,),
        "It has not failed.",
        "`tailrace resume NAME` lets a paused one run.",
    ),
    "TR-8408": Condition(
        "another server has written the same at the same moment",
        (TransientControlError,),
        "Two servers, or two requests, created something of the same name at once; one of them came first.",
        "Try again: what the other one wrote is found then. Servers do so by themselves.",
    ),
    "TR-8411": Condition(
        "there is another subscription of that name",
        (ControlError,),
        "Creating the same subscription twice is allowed, another one with its name is not.",
        "Change it with its version (`If-Match`), or take another name.",
    ),
    "TR-8412": Condition(
        "there is no subscription of that name",
        (ControlError,),
        "It was never created, or was deleted.",
        "`tailrace get` lists them.",
    ),
    "TR-8413": Condition(
        "a subscription is not stopped",
        (ControlError,),
        "It was to be deleted, and a server may still run it.",
        "`tailrace pause NAME`, wait until no server runs it, delete it then.",
    ),
    "TR-8414": Condition(
        "a subscription has been changed",
        (ControlError,),
        "A change is based on an older version of it: it would undo what somebody else did.",
        "Read it again (`tailrace get NAME`), and make the change again.",
    ),
    "TR-8415": Condition(
        "the name of a subscription is wrong",
        (ConfigError,),
        "Names are parts of addresses and files.",
        "Letters, digits, `_`, `.` and `-`, the first a letter or digit; 128 at most.",
    ),
    "TR-8416": Condition(
        "the file of a subscription has another name",
        (ConfigError,),
        "`pipeline.name` differs from the name of the subscription.",
        "Leave `pipeline.name` out, or give it the subscription's name.",
    ),
    "TR-8417": Condition(
        "the checkpoint of a subscription cannot be changed",
        (ConfigError,),
        "The stream's position is in its checkpoint.",
        "Create another subscription for another stream.",
    ),
    "TR-8418": Condition(
        "a pipeline file for the control plane holds a secret",
        (ConfigError,),
        "The control plane keeps pipeline files in its database, and shows them.",
        "Put a reference there: `${env:NAME}` or `${file:PATH}`.",
    ),
    "TR-8420": Condition(
        "a server may no longer run a subscription",
        (LeaseLostError,),
        "Its lease has ended: the server was stopped, or cut off from the database, and another one may "
        "have taken over.",
        "Nothing: what it was writing is written again by the new owner, and targets leave out what they "
        "have.",
    ),
    "TR-8421": Condition(
        "a checkpoint is not the one of the last owner",
        (StateError,),
        "The server reaches another checkpoint than the server that ran the subscription before, or it "
        "was restored from a copy.",
        "Put checkpoints on storage that all servers share: a mounted path, or an object store. If it was "
        "restored: restore the newest copy.",
    ),
    "TR-8422": Condition(
        "a pipeline has ended by a bug",
        (SourceError,),
        "An error that Tailrace does not know was raised.",
        "The traceback is in the log file of the subscription. Please report it. Then `tailrace retry NAME`.",
    ),
    "TR-8423": Condition(
        "a worker has ended unexpectedly",
        (TransientControlError,),
        "It was killed, e.g. by the system for want of memory, or could not start.",
        "It is started again after a pause. For want of memory: lower the server's `--capacity`.",
    ),
    "TR-8424": Condition(
        "a worker could not be started",
        (TransientControlError,),
        "A file could not be written, or no process be started.",
        "See to room on the disk, memory, and the limits of processes and files.",
    ),
    "TR-8425": Condition(
        "the server's name is wrong",
        (ConfigError,),
        "It is empty, too long, or not printable.",
        "`--name`: 1 to 128 characters.",
    ),
    "TR-8426": Condition(
        "the password of the control plane's database is not a reference",
        (ConfigError,),
        "Command lines are seen by every user of the machine.",
        "`--database-password '${env:NAME}'` or `'${file:PATH}'`.",
    ),
    "TR-8427": Condition(
        "the server cannot listen at its address",
        (ConfigError,),
        "`--listen` is no address of this machine, or another process uses it.",
        "Give HOST:PORT with a free port, e.g. `127.0.0.1:8770`.",
    ),
    "TR-8428": Condition(
        "the server's certificate is missing",
        (ConfigError,),
        "Tokens would cross the network in clear text, or a file of `--tls-cert` and `--tls-key` is missing.",
        "Give both files; or `--plain-http`, if a proxy in front of the server speaks TLS.",
    ),
    "TR-8430": Condition(
        "the log of a subscription cannot be read",
        (StateError,),
        "The file is not readable for the server that was asked.",
        "All servers must reach the same data directory (`--data-dir`), as the same user.",
    ),
    "TR-8431": Condition(
        "the name or the life of a token is wrong",
        (ConfigError,),
        "The name has other characters than letters, digits, `_`, `.`, `@` and `-`; or the token would end "
        "before it begins.",
        "Change it as the message says.",
    ),
    "TR-8432": Condition(
        "there is another token of this name",
        (ControlError,),
        "The audit names users by their tokens, so names are unique.",
        "Take another name, or revoke the other token first.",
    ),
    "TR-8433": Condition(
        "there is no token of this name",
        (ControlError,),
        "It was revoked, or never made.",
        "List the tokens: `GET /api/v1/tokens`.",
    ),
    "TR-8434": Condition(
        "a token is the last one of scope `admin`",
        (ControlError,),
        "Without it nobody could make tokens.",
        "Make another one of this scope first.",
    ),
    "TR-8435": Condition(
        "a pipeline file is not allowed on a server",
        (ConfigError,),
        "It names a file, host, variable or code that the server's policy does not allow "
        "([control plane](../guides/control-plane.md)).",
        "Change the file as the hint says; or have whoever runs the server allow it by the option that the "
        "hint names.",
    ),
    "TR-8436": Condition(
        "a check has not been made",
        (ControlError,),
        "A server checks one pipeline file at a time, and others take long.",
        "Try again later, or ask another server.",
    ),
    "TR-8437": Condition(
        "the API needs a token",
        (ControlError,),
        "None was sent, or one that is not known: it was revoked, has ended, or is of another database.",
        "Send one: `Authorization: Bearer tr_...`; commands take it from `TAILRACE_TOKEN` or `--token-file`.",
    ),
    "TR-8438": Condition(
        "a token may not do what was asked",
        (ControlError,),
        "Its scope is smaller: `read` looks, `operate` also pauses, resumes, retries and sends requests, "
        "`admin` also creates, changes and removes.",
        "Use a token with the scope that the message names.",
    ),
    "TR-8439": Condition(
        "too many wrong tokens came from an address",
        (ControlError,),
        "Ten tokens in a minute were not known.",
        "Wait as long as the message says.",
    ),
    "TR-8440": Condition(
        "a request to the API is wrong",
        (ControlError,),
        "A field is missing, unknown or of another type, a header is missing, or the body is too large.",
        "See `/api/v1/openapi.json`.",
    ),
    "TR-8441": Condition(
        "the server has failed by a bug",
        (ControlError,),
        "An error that Tailrace does not know was raised.",
        "The traceback is in the server's log. Please report it.",
    ),
    "TR-8442": Condition(
        "a command does not know the server, or its token",
        (ConfigError,),
        "Commands about subscriptions ask a server of the control plane.",
        "`export TAILRACE_SERVER=https://HOST:PORT` and `TAILRACE_TOKEN=tr_...`; or give `--server` and "
        "`--token-file`.",
    ),
    "TR-8443": Condition(
        "a server of the control plane does not answer",
        (ControlError, TransientControlError),
        "It does not run, the address is another one, or something between answers in its place.",
        "Check `TAILRACE_SERVER`, and that `tailrace serve` runs there.",
    ),
    "TR-8444": Condition(
        "the pipeline files to apply are wrong",
        (ConfigError,),
        "There is none, or two have one name.",
        "Give each file a name of its own: the file's, or `pipeline.name`.",
    ),
    "TR-8460": Condition(
        "a form is not of this session",
        (ControlError,),
        "Another site sent it, somebody has signed in or out since the page was opened, or cookies are "
        "blocked. Behind a proxy: the header `Host` is another one than the browser's.",
        "Load the page again and send the form once more. Let a proxy pass on the header `Host`.",
    ),
    "TR-8461": Condition(
        "too many wrong tokens",
        (ControlError,),
        "Several wrong tokens came from one address within a minute.",
        "Wait for a minute.",
    ),
    "TR-8462": Condition(
        "a token is not known",
        (ControlError,),
        "It is not whole, has ended, or has been revoked.",
        "Look at the tokens on the server's host: `tailrace token list`.",
    ),
    "TR-8463": Condition(
        "a request to a page is wrong",
        (ConfigError,),
        "An address was changed by hand, or a form was not made by a page of this version.",
        "Go to the list of pipelines, and from there to the page.",
    ),
    "TR-8464": Condition(
        "a token does not allow what a page was asked for",
        (ControlError,),
        "Scope `read` looks, `operate` pauses, resumes and retries, `admin` does everything.",
        "Sign in with a token of another scope.",
    ),
    "TR-8465": Condition(
        "the checkpoint of a subscription cannot be reached or read",
        (StateError,),
        "The server that was asked cannot reach the checkpoint, may not read it, or is older than the "
        "Tailrace that has written it.",
        "All servers must reach the checkpoint as the same user, and have one version of Tailrace.",
    ),
    "TR-8466": Condition(
        "a live sample is not allowed",
        (ConfigError,),
        "The pipeline file says `pipeline.sample: none` or `keys`, or the server was started with such a "
        "`--sample`: no change of the pipeline, or no value, is shown.",
        "Look at the targets, or change the file or the option.",
    ),
    "TR-8467": Condition(
        "the values of a table are not shown in a live sample",
        (ConfigError,),
        "The pipeline transforms the table's rows, maybe to hide something. The sample is taken before that.",
        "Look at the table's target.",
    ),
    "TR-8470": Condition(
        "a target is written by another server",
        (LeaseLostError,),
        "The target has a commit under a newer lease than this process has: the process was stopped or cut "
        "off, and another server runs its pipeline now.",
        "Nothing: the other server writes what this one was about to write. If no other server runs it, the "
        "control plane's database was restored from an old copy, or the pipeline was moved to another "
        "control plane, whose leases have lower numbers. Stop all servers and raise them, in the database: "
        "`UPDATE subscriptions SET lease = lease + 1000000`. For one target alone: remove the number from "
        "it. Delta: `ALTER TABLE ... UNSET TBLPROPERTIES ('tailrace.lease')`, there, in "
        "`_tailrace_batches` and in `_tailrace/changes`; Iceberg: the same property; databases: "
        "`UPDATE _tailrace SET lease = 0`; DuckDB: `UPDATE _tailrace.targets SET lease = 0`; Redis: "
        "`HDEL {STREAM}:tailrace lease`.",
    ),
    "TR-8471": Condition(
        "the server is not reached under that name",
        (ControlError,),
        "The header `Host` has a name that is not this server's: it is reached under a name that it was not "
        "told of, a proxy sends another one, or a page of another site tries to reach it under its own name "
        "(DNS rebinding).",
        "If the name is right: `tailrace serve --public-url https://HOST`, for what browsers use, or "
        "`--public-host HOST`.",
    ),
    "TR-8472": Condition(
        "the settings of the provider for signing in are wrong",
        (ConfigError,),
        "The file of `tailrace serve --oidc` lacks a setting, or has one that is unknown or wrong.",
        "Correct it; docs/guides/control-plane.md has examples of Keycloak, Entra ID and Google.",
    ),
    "TR-8473": Condition(
        "the provider for signing in cannot be used",
        (TransientControlError,),
        "It does not answer in time, its certificate is not trusted, or what it says of itself is not what "
        "`issuer` names.",
        "See that the server reaches `issuer` with TLS; authorities of your own: `ca`. Tokens of the control "
        "plane work meanwhile.",
    ),
    "TR-8474": Condition(
        "a sign-in through the provider, or its token, is refused",
        (ControlError,),
        "A token is not signed by the provider, not made for this control plane, has ended, or is no access "
        "token. A sign-in was refused by the provider, took more than ten minutes, or was begun by another "
        "browser.",
        "Sign in again. If it stays so, compare `issuer`, `client-id`, `client-secret` and `api-audience` "
        "with the provider's settings, and the clocks.",
    ),
    "TR-8475": Condition(
        "somebody whom the provider knows may not do anything here",
        (ControlError,),
        "No claim of the token has a value that grants a scope, or the provider does not send the claim.",
        "Grant one in `read`, `operate` or `admin` of the file of --oidc, and have the provider put the "
        "claim into ID tokens and access tokens.",
    ),
    "TR-8476": Condition(
        "a provider of secrets is not installed",
        (ConfigError,),
        "A setting is `${PROVIDER:PATH}`, and no installed package has an entry point of this name in the "
        "group `tailrace.secrets`.",
        "Correct the name, or install the package where Tailrace runs.",
    ),
    "TR-8477": Condition(
        "a secret cannot be had from its provider",
        (ConfigError,),
        "The provider does not answer, does not know the path, or has no such key. Its own message is not "
        "shown: it may hold the secret.",
        "Try the provider by its own means, as the user that runs Tailrace. `exec`: the program prints the "
        "secret, or a JSON object whose key is named behind `#`, and ends with exit code 0 within 20 s.",
    ),
    "TR-8478": Condition(
        "an option for proxies and public names is wrong",
        (ConfigError,),
        "`--public-url` is `https://HOST` without a path, `--public-host` a name without a port, "
        "`--trusted-proxy` an address or a network whose other bits are zero.",
        "Correct the option.",
    ),
    "TR-8479": Condition(
        "a host stands for an address that is not allowed",
        (ConfigError,),
        "A name was looked up for a connection, and stands for an address that the server's policy does not "
        "allow: it was another one when the pipeline was checked (DNS rebinding), or could not be looked up.",
        "See what the name stands for on the server's host. If it is right: `tailrace serve --allow-host` "
        "with its network. Addresses of the link and of clouds' credentials are never allowed.",
    ),
    "TR-8480": Condition(
        "a subscription has no such job",
        (ControlError,),
        "The number is wrong, or the job has ended long ago: the last hundred are kept.",
        "List them: `tailrace job list NAME`.",
    ),
    "TR-8481": Condition(
        "the key of a job is that of another one",
        (ControlError,),
        "A client's key names one job. A request with it that asks for something else is refused, since it "
        "would not be done.",
        "Give each job a key of its own; repeat a request with the same key and the same content only.",
    ),
    "TR-8482": Condition(
        "a subscription is cancelled, so it takes no jobs",
        (ControlError,),
        "Jobs are done by the server that runs the subscription, and none runs it any more.",
        "Create another subscription, or compare with the command: `tailrace verify PIPELINE.YAML`.",
    ),
    "TR-8483": Condition(
        "a job has ended, and cannot be cancelled",
        (ControlError,),
        "It was done, or had failed, before the request came.",
        "Nothing. Rows that a repair reads again are read to the end.",
    ),
    "TR-8484": Condition(
        "a job was given up after several owners",
        (ControlError,),
        "Each server that owned the subscription began with it and lost the subscription before its end: the "
        "worker was killed each time, perhaps for want of memory, or somebody stopped the servers.",
        "See why: `tailrace logs NAME`, and the servers' output. Then create another job.",
    ),
    "TR-8485": Condition(
        "a stream has refused a job",
        (ControlError,),
        "The stream captures none of the tables, or is not run by a server or `tailrace run`.",
        "The detail says why. Name tables that the stream captures, and create another job.",
    ),
    "TR-8486": Condition(
        "a job could not compare all tables",
        (ControlError,),
        "A table is parked, its rows are being read, its target cannot be compared, or source or target do "
        "not answer.",
        "The job's result has the reason, and the code, of each table: see to it, and create another job.",
    ),
    "TR-8487": Condition(
        "the offset of a subscription cannot be set while it may run",
        (ControlError,),
        "It is not paused, or its worker has not ended yet: the worker has the offset in its memory.",
        "`tailrace pause NAME`, wait until `tailrace get NAME` shows no owner, and set the offset again.",
    ),
    "TR-8488": Condition(
        "the offset of a subscription has changed",
        (ControlError,),
        "The stream has read on, or somebody else has set its offset, since it was looked at.",
        "Look at it again (`tailrace offsets show NAME`), and decide again.",
    ),
    "TR-8490": Condition(
        "the pipelines of a group need different Spark sessions",
        (ConfigError,),
        "Pipelines of the same `pipeline.group` share a Spark session with one set of settings: `master`, "
        "`parallelism`, `spark`, whether Delta is written, and which object stores are reached.",
        "Give all of them the same settings, or the one that differs another `group`. To change the settings "
        "of a whole group, give all its pipelines another `group` together with the new settings.",
    ),
    # ---- 90 Development servers and demo -------------------------------------------------------------------
    "TR-9001": Condition(
        "the demo's directory is not empty",
        (TailraceError,),
        "It contains files that no demo wrote.",
        "Choose another one: `tailrace demo --dir PATH`.",
    ),
    "TR-9002": Condition(
        "a process of the demo failed",
        (TailraceError,),
        "It ended, or a step took too long. The end of its output is in the detail.",
        "See the log file that the hint names.",
    ),
    "TR-9003": Condition(
        "there is no user to run the server as",
        (TailraceError,),
        "Servers do not run as root, and no unprivileged user or safe directory for it is available.",
        "Start the server as another user.",
    ),
    "TR-9004": Condition(
        "a program is not available on this machine",
        (TailraceError,),
        "Neither `PATH` nor the package mirror has it in this version.",
        "Install the server so that its program is on `PATH`, or use a server that runs elsewhere.",
    ),
    "TR-9005": Condition(
        "a program could not be installed or started",
        (TailraceError,),
        "A download or an installer failed. The end of its output is in the detail.",
        "Check the disk space and the way to the package mirror.",
    ),
    "TR-9006": Condition(
        "the name of a development server does not fit",
        (TailraceError,),
        "There is no server of this name, there is one already, or another version of Tailrace started it.",
        "`tailrace dev list` shows the servers, `tailrace dev stop NAME` removes one.",
    ),
    "TR-9007": Condition(
        "a development server did not start",
        (TailraceError,),
        "The end of its log is in the detail.",
        "See the log file that the hint names.",
    ),
}
