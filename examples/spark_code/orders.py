"""The source in a Spark program: one table with its own columns, and Spark SQL over the stream.

First: export SHOP_URL=mysql://127.0.0.1:3306 SHOP_USER=root SHOP_PASSWORD=...
Then: python orders.py, or spark-submit orders.py
"""

import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders").config("spark.sql.session.timeZone", "UTC").getOrCreate()

changes = (
    spark.readStream.format("tailrace")
    .option("url", os.environ["SHOP_URL"])
    .option("user", os.environ["SHOP_USER"])
    .option("password", "${env:SHOP_PASSWORD}")  # looked up when the stream connects, never printed
    .option("tables", "shop.orders")
    .load()
)
# The table's columns, and: _op (r c u d), _seq (sorts in log order), _ts_ms, _txn, _position, _absent

# A streaming DataFrame is a view like any other: filter and project it with Spark SQL.
changes.createOrReplaceTempView("changes")
expensive = spark.sql("""
    SELECT id, item, price, _op, _seq, timestamp_millis(_ts_ms) AS changed_at
    FROM changes
    WHERE price >= 10
""")

query = (
    expensive.writeStream.format("parquet")
    .option("path", "expensive_orders")
    .option("checkpointLocation", "checkpoint")
    .trigger(availableNow=True)  # or leave it out: batches as changes come
    .start()
)
query.awaitTermination()

spark.read.parquet("expensive_orders").orderBy("_seq").show(truncate=False)
