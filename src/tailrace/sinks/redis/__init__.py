"""The Redis sink: `sink` on the driver, `channel` in tasks, `scripts` in the server. Needs an extra."""
