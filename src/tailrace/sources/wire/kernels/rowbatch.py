"""The memory that `wire.changes` and the row kernel of each database share. All words are int64.

A row kernel decodes row events of one table into the images' buffers until they end or the batch is full:

    events, chosen, count      records of row events (EV_), indices of those to decode, their number
    cursor                     where to continue, and what was done (CU_)
    columns, ncol              descriptors of the before image's columns, then the after image's (`columns`)
    variable, nvar             indices of the columns with offsets, their number
    out                        what each row gets next to its images (OUT_)
    max_rows, max_bytes        rows there is room for; bytes of input after which the batch is full
    scratch, tables            the kernel's own memory, its table of constants

It returns DONE, BATCH_FULL, NO_ROOM (the row at the cursor does not fit the data of column CU_COLUMN), or a
higher number of its own: an error of the row at the cursor.
"""

from __future__ import annotations

#: Result of a call; the numbers from OWN_STATUS on are the kernel's own errors.
DONE, BATCH_FULL, NO_ROOM = range(3)
OWN_STATUS = 3

#: Words of a row event's record: addresses of its start and end, its type, slot of its table's layout, index
#: of its transaction, its position in the log, number of its first row, a word of the decoder's own.
EV_START, EV_END, EV_TYPE, EV_SLOT, EV_TXN, EV_POS, EV_ROW, EV_OWN = range(8)
EV_WORDS = 8

#: Words of the cursor. In and out: index of the event. Out: rows decoded, transactions among them, rows with
#: a before and with an after image, column of an error (counted through both images; -1: none). The words
#: from CU_OWN on are the kernel's own.
CU_EVENT, CU_ROWS, CU_TXNS, CU_BEFORE, CU_AFTER, CU_COLUMN = range(6)
CU_OWN = 6
CU_WORDS = 10

#: Words of the output block, all addresses: per row op (int8), index into the list of transactions (int32),
#: position in the log (int64), row number (int32); the list of transactions (int32); bitmaps of the rows
#: that have a before and an after image.
OUT_OP, OUT_TXN, OUT_POS, OUT_ROW, OUT_TXNS, OUT_BEFORE, OUT_AFTER = range(7)
OUT_WORDS = 8
