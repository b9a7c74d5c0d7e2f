"""The control plane: pipelines as subscriptions in a database, run by servers that may die.

    metadata/       the database: tables, migrations, its clock
    stages          what a subscription does: states and the moves between them
    subscriptions   what users ask for, with the audit of each change
    leases          which server may run a subscription, and for how long
    operations      what users ask a server for; streams, inspection
    jobs            comparisons and repairs that somebody asked for, and who does them
    offsets         where streams are, and where somebody wants them to be
    policy, places  what pipeline files may do there, and where their files are
    tokens          who may use the API and the pages
    http            the address at which a server answers
    api/            what programs ask, over HTTP
    pages/          what people look at
    client/         commands that ask a server

docs/design/0014-control-plane.md has the reasons.
"""
