"""Delta tables: one per target, each batch in them exactly once.

A batch is written part by part; a part is one table's snapshot rows or its changes:

    mode        snapshot rows                     changes
    upsert      appended                          last change per key, old rows deleted, new ones added
    changelog   appended                          appended
    scd2        appended, each a first version    every change a version, then MERGE (`merge`)

**Exactly once.** Each commit carries `txn` (appId = stream + table + part, version = batch number). A part
whose batch number is not above the last one for that appId is in the table already and is left out: so a
batch that comes again, after a crash between any two commits, adds what is missing and nothing else. Delta
checks the same inside its commit, whoever makes it.

**Merges cost, appends do not.** A merge reads the table's keys (tasks do it, `upsert`) or its rows (Spark's
MERGE, `merge`: for versions, and where tasks cannot), so its cost hardly depends on how much it brings.
Changes are merged at once while there is time for it, else they are received: appended to a table beside the
target, `_tailrace/changes/<target>`, and merged together when a merge is due (`schedule`): by the clock,
when the stream rests, when it ends. All targets are merged in the same round.

    changes of batch n ──▶ merge due and none pending? ──▶ MERGE                              (txn: table, n)
                       └─▶ else append to the changes   (txn: table, n)
    merge due          ──▶ MERGE the changes above txn(merge) (txn: merge, n) ──▶ delete them from the changes

A crash before the MERGE leaves the changes where they are; one after it leaves changes that txn(merge) says
are merged. Either way nothing is lost and nothing comes twice.

**What a table holds** can be told from the tables alone. Each commit's `userMetadata` is JSON: `{"batch": 7,
"end": {stream offset}, "table": ..., "part": ...}`. A target shows the state of the greatest batch in its
history but for the changes that are pending beside it (`pending.overlay` brings them in); and
`_tailrace_batches` (`batches`) says of every batch which version of each target shows it.

A target belongs to the stream that made it: its properties say which (`tailrace.stream`), and another
stream's table, or one made by hand, is a StateError, never overwritten. Two tables routed to one target are
written one after the other; different targets by a pool of threads, each with its own Spark session, as
Delta takes `txn` and `userMetadata` of a MERGE from session settings.

What is appended is written by Python tasks as Parquet (`sinks.tables.parquet`) and committed by the driver,
without passing through the JVM. Where tasks cannot reach the table by a path (an object store), or its
columns are mapped to other names, Spark writes: slower, with the same result.
"""
