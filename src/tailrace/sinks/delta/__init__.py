"""Delta tables: one per target, each batch in them exactly once.

A batch is written in parts: the snapshot rows of a table, or its changes.

    mode        snapshot rows                     changes
    upsert      appended                          last change per key: old rows deleted, new rows added
    changelog   appended                          appended
    scd2        appended, each a first version    each change ends a version and, unless a delete, begins one

**Exactly once.** Each commit carries `txn` (appId = stream + table + part, version = batch number). A part
whose batch number is not above the last one for its appId is in the table already and is skipped. So a batch
that comes again, after a crash between any two commits, adds what is missing and nothing else. Delta checks
the same inside each commit.

**Merges are expensive, appends are cheap.** A merge reads the keys of a table's rows, or of its current
versions (in tasks, `upsert` and `versions`), or its rows (Spark's MERGE, `merge`, where tasks cannot), so its
cost hardly depends on the number of changes. Where it takes little longer than its commit, as in small
tables, and while there is time, changes are merged at once. Otherwise they are pending: appended to a table
next to the target, `_tailrace/changes/<target>`, and merged together when a merge is due (`schedule`): after
an interval, when the stream is idle, when it ends. All targets are merged in the same round.

    changes of batch n ──▶ cheap or due, none pending? ──▶ MERGE                              (txn: table, n)
                       └─▶ else append to the changes   (txn: table, n)
    merge due          ──▶ MERGE the changes above txn(merge) (txn: merge, n) ──▶ delete them from the changes

A crash before the MERGE leaves the changes pending. A crash after it leaves changes that txn(merge) marks as
merged. Either way nothing is lost and nothing is applied twice.

**The tables alone tell what they hold.** Each commit's `userMetadata` is JSON: `{"batch": 7, "end": {stream
offset}, "table": ..., "part": ...}`. A target shows the state of the greatest batch in its history, except
for its pending changes (`pending.overlay` applies them); and `_tailrace_batches` (`batches`) lists for every
batch the version of each target that shows it.

A target belongs to the stream that created it, named in its properties (`tailrace.stream`). A table of
another stream, or one created by hand, is a StateError and never overwritten. Two tables routed to one target
are written one after the other. Different targets are written by a pool of threads, each with its own Spark
session, as Delta takes `txn` and `userMetadata` of a MERGE from session settings.

Appended rows are written by Python tasks as Parquet (`sinks.tables.parquet`) and committed by the driver,
without passing through the JVM. Where tasks cannot reach the table by a path (an object store), or its
columns are mapped to other names, Spark writes: slower, with the same result. A table whose first rows are in
files already is created by the commit that adds them (`DeltaTable.plan`, `first_version`).
"""
