"""Iceberg tables: one per target, each batch in them exactly once.

Written through pyiceberg, as there is no Iceberg runtime for Spark 4.2: Maven Central has those for 4.0 and
4.1 only, and the one for 4.1 does not load ("SparkView can not implement ...catalog.View, because it is
not an interface"). Spark's tasks write the Parquet files from Arrow columns, the driver commits: nothing
passes through the JVM.

**Exactly once.** All that a batch brings to a target is one commit: the table's property `tailrace.batch` and
one snapshot, whose summary says batch, stream and the offset at the batch's end. Either both are there or
neither, and a batch that is not above the property is left out. The property outlasts expired snapshots.

    changelog   appended
    upsert      snapshot rows appended; of changes the last per key counts, and where the log left columns out
                of it, those before it and the old row (`rewrite`)

**Upserts copy on write**: pyiceberg writes no delete files, so a data file with changed keys is written anew
without them, by the tasks, file by file; the others are not touched. A batch over random keys rewrites
much, one over neighbouring keys little.

A commit that another writer was faster than is a TransientSinkError: the batch comes again. Files with
delete files of another engine beside them are not rewritten but refused: what they delete would come back.
"""
