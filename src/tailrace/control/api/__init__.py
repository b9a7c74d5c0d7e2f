"""The API of the control plane, under `/api/v1`: docs/guides/control-plane.md.

app             puts it together
access          who asks, and whether the scope is enough
problems        errors as `application/problem+json`
protection      sizes of requests, headers of responses
models          what goes in and out
subscriptions   pipelines: list, create, change, pause, resume, cancel, retry, remove
streams         of one pipeline: status, tables, signals, events, log
offsets         of one pipeline's streams
jobs            of one pipeline: verify and repair
inspection      checks of files, tables of sources
administration  tokens, servers, the audit
health          whether the server answers; metrics
"""
