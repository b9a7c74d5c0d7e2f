"""The webhook sink: `sink` on the driver, `channel` in tasks, `bodies` and `endpoint` below."""
