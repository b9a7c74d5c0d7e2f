"""The control plane: pipelines as subscriptions in a database, run by servers that may die.

    metadata/       the database: tables, migrations, its clock
    stages          what a subscription does: states and the moves between them
    subscriptions   what users ask for, with the audit of each change
    leases          which server may run a subscription, and for how long

docs/design/0014-control-plane.md has the reasons.
"""
