"""The Kafka sink: `sink` on the driver, `writer` in tasks, `librdkafka` below both. Needs an extra."""
