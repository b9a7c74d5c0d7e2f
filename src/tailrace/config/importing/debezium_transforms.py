"""The transforms of a connector (SMTs): routes, flat rows, and columns that are left out.

A transform changes the message that the one before it has made. Here routes and formats are settings, without
an order, so a chain is taken over only where its order makes no difference: one router, and flat rows before
transforms of fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tailrace.config.flat_fields import TRANSACTION_FIELDS
from tailrace.config.importing.debezium_columns import leave_out
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.config.importing.given import Given, listed
from tailrace.config.java_patterns import Replacement
from tailrace.errors import ConfigError

_ROUTERS = ("org.apache.kafka.connect.transforms.RegexRouter", "io.debezium.transforms.ByLogicalTableRouter")
_UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_OUTBOX = "io.debezium.transforms.outbox.EventRouter"
_REPLACE = "org.apache.kafka.connect.transforms.ReplaceField$Value"
_MASK = "org.apache.kafka.connect.transforms.MaskField$Value"
#: What is known of others: why they have no equivalent.
_OTHERS = {
    "io.debezium.transforms.Filter": "a transform's `filter` has a condition in SQL: write it by hand",
    "io.debezium.transforms.ContentBasedRouter": (
        "the sink's `topic-by` chooses the topic by a column: write it by hand"
    ),
}
#: Settings of outboxes that are texts.
_OF_OUTBOX = (
    "table.op.invalid.behavior",
    "table.field.event.id",
    "table.field.event.key",
    "table.field.event.timestamp",
    "table.field.event.payload",
    "table.field.additional.missing",
    "route.by.field",
    "route.topic.regex",
    "route.topic.replacement",
)
_PLACES = "table.fields.additional.placement"
#: Settings of the field in keys.
_OF_KEYS = ("key.field.name", "key.field.regex", "key.field.replacement")
#: Former settings of deletes: whether tombstones are dropped, `delete.handling.mode`; and today's.
_FORMER_DELETES = {
    (True, "drop"): "drop",
    (False, "drop"): "tombstone",
    (True, "rewrite"): "rewrite",
    (False, "rewrite"): "rewrite-with-tombstone",
    (True, "none"): "delete-to-tombstone",
    (False, "none"): "tombstone",
}


@dataclass
class Chain:
    """What the transforms make of messages.

    Args:
        unwrap: the name of the transform that makes flat rows; empty: there is none.
        deletes: its `delete.tombstone.handling.mode`.
        has_former_deletes: whether former settings said this.
        added: settings of the fields that it adds.
        needs_transactions: whether these are fields of the block `transaction`.
        outbox: settings of outboxes, if there are some.
        renames_topics: the name of a router that leaves the names of schemas; empty: there is none.
    """

    unwrap: str = ""
    deletes: str = "tombstone"
    has_former_deletes: bool = False
    added: dict[str, DraftEntry] = field(default_factory=dict)
    needs_transactions: bool = False
    outbox: dict[str, DraftEntry] = field(default_factory=dict)
    renames_topics: str = ""

    @property
    def is_flat(self) -> bool:
        """Whether messages are flat rows."""
        return bool(self.unwrap)

    def settings(self, *, has_tombstones: bool) -> dict[str, DraftEntry]:
        """The sink's settings of flat rows."""
        found = dict(self.added)
        mode = self.deletes
        if not has_tombstones and mode == "rewrite-with-tombstone":
            mode = "rewrite"
        if not has_tombstones and self.has_former_deletes and mode == "tombstone":
            mode = "drop"
        if mode not in ("tombstone", "delete-to-tombstone"):
            found["delete-tombstone-handling-mode"] = DraftEntry(
                mode, f"{self.unwrap}.delete.tombstone.handling.mode"
            )
        return found

    def give_up_flat(self) -> None:
        """Let messages have the envelope."""
        self.unwrap = ""
        self.needs_transactions = False


def transforms(given: Given, made: Draft, prefix: str) -> Chain:
    """Take the connector's transforms into a draft.

    Args:
        given: the connector's settings.
        made: the draft, for routes and columns.
        prefix: `topic.prefix`.

    Raises:
        ConfigError: a setting is wrong.
    """
    chain = Chain()
    is_routed = False
    for name in listed(given.take("transforms") or ""):
        settings = given.without(f"transforms.{name}.")
        kind = settings.take("type") or ""
        title = f"transforms.{name}"
        predicate = settings.take("predicate")
        settings.take("negate")
        if predicate is not None:
            made.miss(title, "its predicate: whether a transform applies is decided by `source-table` alone")
            if kind not in (_REPLACE, _MASK, _OUTBOX):
                continue
        if kind in _ROUTERS and not is_routed:
            is_routed = True
            _router(settings, made, kind, prefix, title)
            if kind == _ROUTERS[0]:
                chain.renames_topics = title
        elif kind == _OUTBOX and not chain.outbox:
            _outbox(settings, made, chain, title, has_predicate=predicate is not None)
        elif kind == _UNWRAP and not chain.is_flat:
            _unwrap(settings, made, chain, title)
        elif kind in (_REPLACE, _MASK) and chain.is_flat:
            _fields(settings, made, kind, title)
        else:
            made.miss(title, _OTHERS.get(kind, f"there is nothing like {kind.rpartition('.')[2] or 'it'}"))
            settings = Given({})
        for left in settings.left():
            made.miss(f"{title}.{left}", "there is no such setting here")
    given.take("predicates")
    given.without("predicates.")
    return chain


def _router(settings: Given, made: Draft, kind: str, prefix: str, title: str) -> None:
    is_logical = kind.endswith("ByLogicalTableRouter")
    head = "topic." if is_logical else ""
    regex = settings.needed(f"{head}regex")
    made.sink["topic-regex"] = DraftEntry(regex, f"{title}.{head}regex")
    replacement = settings.take(f"{head}replacement", is_secret=True) or ""  # ${name} is a group
    made.sink["topic-replacement"] = DraftEntry(replacement, f"{title}.{head}replacement")
    if not is_logical or not settings.flag("key.enforce.uniqueness", default=True):
        made.sink["key-enforce-uniqueness"] = DraftEntry(value=False, origin=title)
        for name in _OF_KEYS if is_logical else ():
            settings.take(name)
    for name in _OF_KEYS if is_logical else ():
        if (text := settings.take(name, is_secret=True)) is not None:
            made.sink[name.replace(".", "-")] = DraftEntry(text, f"{title}.{name}")
    if is_logical:
        settings.take("schema.name.adjustment.mode")
        settings.take("logical.table.cache.size")
    side_topics = (prefix, f"{prefix}.transaction", f"__debezium-heartbeat.{prefix}", f"{prefix}.message")
    try:
        replaced = [
            name for name in side_topics if Replacement(regex, "", ("regex", "replacement")).of(name) == ""
        ]
    except ConfigError:
        replaced = []
    if replaced:
        made.miss(title, f"other topics than those of tables: {', '.join(f'`{name}`' for name in replaced)}")


def _outbox(settings: Given, made: Draft, chain: Chain, title: str, *, has_predicate: bool) -> None:
    section = chain.outbox
    section["tables"] = DraftEntry([".*"], title, "all tables, as there without a predicate")
    if has_predicate:
        made.must_set("sink.outbox.tables", f"the outboxes: `{title}` has a predicate")
    for name in _OF_OUTBOX:
        if (text := settings.take(name, is_secret=True)) is not None:
            section[name.replace(".", "-")] = DraftEntry(text, f"{title}.{name}")
    if (places := settings.take(_PLACES)) is not None:
        section[_PLACES.replace(".", "-")] = DraftEntry(listed(places), f"{title}.{_PLACES}")
    for name in ("table.expand.json.payload", "route.tombstone.on.empty.payload"):
        if settings.flag(name, default=False):
            section[name.replace(".", "-")] = DraftEntry(value=True, origin=f"{title}.{name}")
    nulls = settings.take("table.json.payload.null.behavior") or "ignore"
    if "table-expand-json-payload" in section and nulls == "ignore":
        section["table-json-payload-null-behavior"] = DraftEntry(
            nulls, f"{title}.table.json.payload.null.behavior", "Debezium's default"
        )
    for name in ("table.field.event.schema.version", "table.field.event.type"):
        if settings.take(name) is not None:
            made.need_not(f"{title}.{name}", "events have no schema, and nothing is done with the type")
    made.sink["outbox"] = DraftEntry(section)


def _unwrap(settings: Given, made: Draft, chain: Chain, title: str) -> None:
    chain.unwrap = title
    mode = settings.take("delete.tombstone.handling.mode")
    is_former = "drop.tombstones" in settings or "delete.handling.mode" in settings
    former = (settings.take("delete.handling.mode") or "drop").lower()
    drops = settings.flag("drop.tombstones", default=True)
    if mode is None and is_former:
        mode = _FORMER_DELETES.get((drops, former))
        chain.has_former_deletes = True
    chain.deletes = (mode or "tombstone").lower()
    for name in ("add.fields", "add.headers"):
        setting = name.replace(".", "-")
        if items := listed(settings.take(name) or ""):
            chain.added[setting] = DraftEntry(items, f"{title}.{name}")
            names = (item.partition(":")[0] for item in items)
            chain.needs_transactions |= any(
                name.startswith("transaction.") or name in TRANSACTION_FIELDS for name in names
            )
        begins = settings.take(f"{name}.prefix")
        if begins is not None and items:
            chain.added[f"{setting}-prefix"] = DraftEntry(begins, f"{title}.{name}.prefix")
    if (column := settings.take("route.by.field")) is not None:
        origin = f"{title}.route.by.field"
        chain.added["topic-by"] = DraftEntry(f".*:{column}", origin)
        chain.added["topic-by-value"] = DraftEntry("topic", origin)
        made.must_set(
            "sink.topic-by",
            f"the column `{column}` must be in the message key of each table (TR-7610), see "
            "`message-key-columns`; the pattern is that of all tables",
        )
    if not settings.flag("replace.null.with.default", default=True):
        made.need_not(f"{title}.replace.null.with.default", "null is null here")
    header = settings.take("drop.fields.header.name")
    for name in ("drop.fields.from.key", "drop.fields.keep.schema.compatible"):
        settings.take(name)
    if header is not None:
        made.miss(
            f"{title}.drop.fields.header.name",
            "no header names fields to be dropped: ExtractChangedRecordState writes it, with the fields that "
            "a change leaves as they are, so that each message would have a schema of its own",
        )


def _fields(settings: Given, made: Draft, kind: str, title: str) -> None:
    """Fields that are taken out or blanked: their columns are left out."""
    names = ("exclude", "blacklist") if kind == _REPLACE else ("fields",)
    fields = [name for key in names for name in listed(settings.take(key) or "")]
    if fields:
        leave_out(made, [rf"[^.]+\.[^.]+\.({'|'.join(map(re.escape, fields))})"], title)
    if kind == _MASK:
        settings.take("replacement")
        made.miss(title, "its fields are left out of all rows")
