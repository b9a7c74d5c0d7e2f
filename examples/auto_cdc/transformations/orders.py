"""A table kept equal to its source by AUTO CDC: `format("tailrace")` in shape `row`, as it is.

`_seq` orders all rows of a stream, so it is the sequence; a delete is a row with `_op = 'd'` that shows the
row as it was, key included. What else the source says of a change (`_position`, `_txn`, ...) is left out of
the target.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

spark = SparkSession.active()


@dp.temporary_view
def orders_changes():
    """Changes of the table, the rows that it had first."""
    return (
        spark.readStream.format("tailrace")
        .option("url", os.environ["SHOP_URL"])
        .option("user", os.environ["SHOP_USER"])
        .option("password", "${env:SHOP_PASSWORD}")
        .option("tables", "shop.orders")
        .load()
    )


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="orders_changes",
    keys=["id"],
    sequence_by="_seq",
    apply_as_deletes=expr("_op = 'd'"),
    except_column_list=["_op", "_seq", "_ts_ms", "_txn", "_position", "_absent"],
)
