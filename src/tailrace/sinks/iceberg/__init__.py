"""Iceberg tables: one per target, each batch in them exactly once.

Tables are written through pyiceberg, as there is no Iceberg runtime for Spark 4.2: Maven Central has runtimes
for 4.0 and 4.1 only, and the one for 4.1 does not load ("SparkView can not implement ...catalog.View, because
it is not an interface"). Spark's tasks write the Parquet files from Arrow columns and the driver commits:
nothing passes through the JVM.

**Exactly once.** Everything that a batch brings to a target is one commit: the table's property
`tailrace.batch` and one snapshot, whose summary holds the batch, the stream and the offset at the batch's
end. Both become visible together, and a batch that is not above the property is skipped. The property
outlasts expired snapshots.

    changelog   appended
    upsert      snapshot rows appended; of changes the last per key counts; columns that the log left out of
                it come from earlier changes and the old row (`rewrite`)

**Upserts copy on write**: pyiceberg writes no delete files, so the tasks rewrite each data file with changed
keys without them; other files are not touched. A batch over random keys rewrites much, one over neighbouring
keys little.

**Tables read again** (upsert): the keys that come meanwhile are noted in files below the table's location
(`seen`); the commit of the batch that ends the reading deletes the rows of all other keys.

If another writer commits first, the commit is a TransientSinkError and the batch comes again. Data files with
delete files, which another engine wrote, are rejected: rewriting them would restore the deleted rows.
"""
