"""Versions of documents: what makes a batch that comes again, and a task that outlives its batch, harmless.

A document's version is that of the batch that wrote it last (`sinks.versions`, `version_type: external`).
OpenSearch refuses a write whose version is not above the document's (409). A batch writes a key once, so 409
means that the document has this change, or a later one:

* *A batch that comes again* finds what an earlier attempt has written, and writes the rest.
* *A task of an earlier attempt at the same batch* writes what the attempt that counts writes.
* *A task of an earlier batch* has a lower version: that batch is complete, so each of its keys has its
  version or a higher one. This holds for a deleted key while the index remembers its version
  (`index.gc_deletes`, 15 minutes; an index that remembers less than LEAST_MEMORY_S is refused). A task asks
  before each attempt at a request whether its own attempt still counts, unless it has within CHECK_S, and an
  attempt at a request ends within its time limit. So its last write ends some two minutes after another
  attempt has begun. What is left is a node that is lost with what it remembers.

A document in which rows of another table are nested is written with the version of a batch that changes these
rows, too (`parents`): once at most in a batch, and as a whole.

Versions of two streams mean different things: that is why an index belongs to one stream (`indices`).
"""

from __future__ import annotations

#: How long a task may write without asking whether its attempt is still the one that counts.
CHECK_S = 10
#: How long an index must remember the version of a deleted document.
LEAST_MEMORY_S = 300
