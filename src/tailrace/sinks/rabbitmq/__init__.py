"""The RabbitMQ sink: `sink` on the driver, `channel` in tasks, `client` below both. Needs an extra."""
