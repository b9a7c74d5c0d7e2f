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
from tailrace.config.importing.patterns import python_pattern

_ROUTERS = ("org.apache.kafka.connect.transforms.RegexRouter", "io.debezium.transforms.ByLogicalTableRouter")
_UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_REPLACE = "org.apache.kafka.connect.transforms.ReplaceField$Value"
_MASK = "org.apache.kafka.connect.transforms.MaskField$Value"
#: What is known of others: why they have no equivalent.
_OTHERS = {
    "io.debezium.transforms.outbox.EventRouter": (
        "write the sink's `outbox` by hand: it has the settings of this transform, for the tables that it "
        "names; else the changes of these are sent"
    ),
    "io.debezium.transforms.Filter": "a transform's `filter` has a condition in SQL: write it by hand",
    "io.debezium.transforms.ContentBasedRouter": (
        "the sink's `topic-by` chooses the topic by a column: write it by hand"
    ),
}
#: A first group that is the topic's prefix.
_FIRST_GROUP = re.compile(r"\(\[\^\\?\.\][+*]\)|\(\\w\+\)")
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
        renames_topics: the name of a router that leaves the names of schemas; empty: there is none.
    """

    unwrap: str = ""
    deletes: str = "tombstone"
    has_former_deletes: bool = False
    added: dict[str, DraftEntry] = field(default_factory=dict)
    needs_transactions: bool = False
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
            if kind not in (_REPLACE, _MASK):
                continue
        if kind in _ROUTERS and not is_routed:
            is_routed = True
            if _router(settings, made, kind, prefix, title) and kind == _ROUTERS[0]:
                chain.renames_topics = title
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


def _router(settings: Given, made: Draft, kind: str, prefix: str, title: str) -> bool:
    """Whether topics are others now."""
    is_logical = kind.endswith("ByLogicalTableRouter")
    head = "topic." if is_logical else ""
    regex = settings.needed(f"{head}regex")
    replacement = settings.needed(f"{head}replacement")
    unique = is_logical and settings.flag("key.enforce.uniqueness", default=True)
    key_field = settings.take("key.field.name") if is_logical else None
    if is_logical:
        settings.take("schema.name.adjustment.mode")
        settings.take("logical.table.cache.size")
    found = _route(regex, replacement, prefix)
    if found is None:
        made.miss(
            title,
            "topics begin with `topic-prefix` and a dot, and this router makes others, or those of a pattern "
            "whose beginning is not the prefix; the topics are those without it",
        )
        return False
    pattern, target = found
    rule = {"source-table": DraftEntry(python_pattern(pattern), title), "sink-table": DraftEntry(target)}
    if unique:
        rule["shard-column"] = DraftEntry(key_field or "__dbz__physicalTableIdentifier")
        made.miss(
            f"{title}.key.enforce.uniqueness",
            "the field of the key has `database.table`, without the prefix, and the row has it, too",
        )
    made.route.append(rule)
    return True


def _route(regex: str, replacement: str, prefix: str) -> tuple[str, str] | None:
    """Pattern and target of a router over topics, None: they have no prefix, or it cannot be told apart."""
    if re.search(r"[\\]|\$\{|\$\D|\$$", replacement):
        return None
    head = re.escape(prefix).replace("\\-", "-")
    for begin in {prefix, head}:
        for dot in (r"\.", "."):
            if regex.startswith(begin + dot) and replacement.startswith(f"{prefix}."):
                rest = regex[len(begin + dot) :]
                return None if _is_open(rest) else (rest, replacement[len(prefix) + 1 :])
    first = _FIRST_GROUP.match(regex)
    if first is None or re.fullmatch(first[0], prefix) is None:
        return None
    rest = regex[first.end() :]
    separator = next((d for d in (r"\.", ".") if rest.startswith(d)), None)
    start = next((s for s in ("$1.", f"{prefix}.") if replacement.startswith(s)), None)
    if separator is None or start is None or _is_open(rest[len(separator) :]):
        return None
    numbers = [int(n) for n in re.findall(r"\$(\d+)", replacement[len(start) :])]
    if 1 in numbers or 0 in numbers:
        return None
    target = re.sub(r"\$(\d+)", lambda m: f"${int(m[1]) - 1}", replacement[len(start) :])
    return rest[len(separator) :], target


def _is_open(rest: str) -> bool:
    """Whether the rest of a pattern cannot be cut from what is before it."""
    if rest[:1] in ("*", "+", "?", "{") or re.search(r"\\[1-9]", rest):
        return True
    text = re.sub(r"\\.|\[[^\]]*\]", "", rest)
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    return "|" in text


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
