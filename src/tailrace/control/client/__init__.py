"""The command line as a client of the API: docs/guides/control-plane.md.

connection   requests to a server, and its errors as ours
completion   names of subscriptions for shells
plan         what `apply` would do
commands     apply, get, describe, logs, pause, cancel, retry, delete, export, token
job_commands verify and repair of a subscription, and job list, show, cancel
remote       park, resume and resync of a subscription, instead of a pipeline file
"""
