"""Secrets in statements: passwords are in the log as they were written, and must not go any further.

CREATE TABLE ... CONNECTION = 'mysql://user:password@host/...' (FEDERATED, CONNECT), OPTION_LIST and COMMENT
with a password (CONNECT, Spider), IDENTIFIED BY and PASSWORD.
"""

from __future__ import annotations

import re

from tailrace.sources.mysql.wire.rare.statements import TOKEN

#: What stands for a literal with a secret.
HIDDEN = "'***'"
#: Words whose literal is a secret, whatever is in it.
_BEFORE = frozenset({"CONNECTION", "PASSWORD", "OLD_PASSWORD"})
#: Words whose literal is a secret if IDENTIFIED or REPLACE (of a password) came before them.
_OF_USERS = frozenset({"BY", "AS", "REPLACE"})
#: Marks between such a word and its literal.
_BETWEEN = frozenset({"=", "("})
#: A password inside a literal or a comment.
_INSIDE = re.compile(r"""\bpassword\b\s*(?:[=:]|\\*["'])""", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(\b[a-zA-Z][\w+.-]*://[^\s/:@'\"]*):[^\s@'\"]*@")


def without_secrets(text: str) -> str:
    """The statement `text` with `'***'` in the place of literals that are, or hold, secrets."""
    found, end, word = [], 0, ""
    names_users = False
    for match in TOKEN.finditer(text):
        literal = match["text"] is not None or match["ansi"] is not None
        if literal:
            is_secret = word in _BEFORE or (names_users and word in _OF_USERS)
            if is_secret or _INSIDE.search(match[0]):
                found += [text[end : match.start()], HIDDEN]
                end = match.end()
        elif match["comment"] is not None:
            if _INSIDE.search(match[0]):
                found += [text[end : match.start()], "/* *** */"]
                end = match.end()
            continue
        elif match["mark"] in _BETWEEN:
            continue
        word = (match["word"] or "").upper()
        names_users = names_users or word == "IDENTIFIED"
    return _IN_ADDRESS.sub(r"\1:***@", "".join([*found, text[end:]]))
