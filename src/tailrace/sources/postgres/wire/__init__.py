"""PostgreSQL's bytes as columns, without I/O.

    copy       CopyReader      a socket's bytes behind COPY ... TO STDOUT (FORMAT binary) -> struct arrays
    index      LogIndex        a replication stream's bytes -> transactions, relations; headers only
    pgoutput   LogDecoder      the same bytes -> ChangeBatches

A replication stream's bytes are CopyData messages as they come off the socket (`d`, length, `w` or `k` ...),
held whole; a piece of the log that travels to a task is such bytes, from one transaction's start to another's
end, with the Relation messages in front that the server had sent before (`LogIndex.preamble`).
"""
