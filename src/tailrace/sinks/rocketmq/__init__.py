"""The RocketMQ sink: `sink` on the driver, `channel` in tasks, `remoting` below both."""
