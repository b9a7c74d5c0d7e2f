"""Tables in a file of DuckDB.

    tasks    write the rows of the batch into files, beside the database (`sink`)
    driver   in one transaction: creates and alters tables, brings the rows of the files into them (`upsert`,
             `change_log`), notes which batch each has (`state`)

DuckDB lets one process write, so the driver does, and the whole batch becomes visible at once. **Exactly
once**: the batch is noted in the transaction that brings its rows, and a target that has it is left alone.
The file is open only while a batch is written: in between others can read it.

    changelog   appended
    upsert      the last change of each key replaces the key's row; columns that the log left out of it come
                from earlier changes and the old row

Tables have no constraints and no indexes: DuckDB finds the rows of a batch's keys by a join that reads the
key's columns only.

**DuckLake** is no target: its extension loses a column's statistics where the column's type changes (1.5.5),
and queries then leave out rows without an error.
"""
