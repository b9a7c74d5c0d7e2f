"""Every error has a code of the catalogue, in each place that raises it, and on the page that lists them.

A construction of an error, or of a finding that is not OK, passes `code="TR-...."`. What else is allowed is
listed here by module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tailrace import errors
from tailrace.error_catalogue import CATALOGUE, SUBJECTS
from tailrace.errors import TailraceError
from tests.support.error_page import PAGE, page

SRC = Path(__file__).parents[2] / "src"
CODE = re.compile(r"TR-\d{4}")
#: Expressions by which a module passes on the code of another error.
PASSED_ON = {
    "tailrace/config/load.py": {"error.code"},
    "tailrace/pipeline/checks.py": {"error.code"},
    "tailrace/pipeline/doctor.py": {"error.code"},
    "tailrace/sinks/replica/dialect.py": {"error.code"},
    "tailrace/sources/mysql/checks/archive_check.py": {"error.code"},
    "tailrace/sources/postgres/checks/archive_check.py": {"error.code"},
    "tailrace/sources/mysql/checks/table_checks.py": {"error.code"},
    "tailrace/sources/mysql/wire/decoder.py": {"error.code"},
    "tailrace/sources/mysql/wire/rare/partialrows.py": {"error.code"},
    "tailrace/sources/oracle/checks/preflight.py": {"f.code"},
    "tailrace/sources/preflight.py": {"error.code", "f.code"},
}
#: Modules with a `code=code` whose codes stand in a table or in calls of the same module.
TABLES = {
    "tailrace/sinks/kafka/failure.py",
    "tailrace/sources/mysql/checks/preflight.py",
    "tailrace/sources/mysql/wire/decoder.py",
    "tailrace/sources/oracle/checks/preflight.py",
    "tailrace/sources/oracle/checks/table_checks.py",
    "tailrace/sources/postgres/wire/problems.py",
}


@dataclass(frozen=True)
class Site:
    """A construction of an error or of a finding.

    Args:
        where: file and line.
        source: its source text.
        kind: the class that the code stands for; None: a warning, or a class that is not known.
        codes: the codes it may pass.
        problem: what is wrong with it, None: nothing.
    """

    where: str
    source: str
    kind: str | None
    codes: frozenset[str]
    problem: str | None


def _classes() -> dict[str, str]:
    """The classes of errors in `src`, by name; the values are those of `tailrace.errors`."""
    found = {
        name: name
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, TailraceError)
    }
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    if isinstance(base, ast.Name) and base.id in found:
                        found.setdefault(node.name, found[base.id])
    return found


def _constants(node: ast.AST) -> set[str]:
    return {
        n.value
        for n in ast.walk(node)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and CODE.fullmatch(n.value)
    }


def _keywords(tree: ast.AST) -> Iterator[ast.keyword]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (k for k in node.keywords if k.arg == "code")


def _kind(call: ast.Call, classes: dict[str, str]) -> str | None:
    """The class that a call constructs: of an error, "Finding" if it is not OK, "" if it is another one's."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if name == "Finding":
        severity = [k.value for k in call.keywords if k.arg == "severity"] or call.args[4:5]
        return "Finding" if severity and ast.unparse(severity[0]) != "Severity.OK" else None
    if name in classes:
        return classes[name]
    is_same = isinstance(call.func, ast.Call) and ast.unparse(call.func.func) == "type" and call.args
    return "" if is_same and "error" in ast.unparse(call.func) else None


def _is_warning(call: ast.Call) -> bool:
    text = ast.unparse(call)
    return "Severity.WARNING" in text and "Severity.ERROR" not in text


def _sites_of(path: Path, classes: dict[str, str]) -> Iterator[Site]:
    module = path.relative_to(SRC).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    passed = {id(n) for keyword in _keywords(tree) for n in ast.walk(keyword)}
    outside = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in passed)
    in_table = set[str]().union(*map(_constants, outside))
    for node in ast.walk(tree):
        kind = _kind(node, classes) if isinstance(node, ast.Call) else None
        if kind is None or not isinstance(node, ast.Call):
            continue
        codes, problem = set[str](), None
        given = [k.value for k in node.keywords if k.arg == "code"]
        expression = ast.unparse(given[0]) if given else ""
        if not given:
            problem = "no code"
        elif expression == "code" and module in TABLES:
            codes = in_table
        elif isinstance(given[0], ast.Constant | ast.IfExp) and _constants(given[0]):
            codes = _constants(given[0])
        elif expression not in PASSED_ON.get(module, set()):
            problem = f"a code that is not literal: {expression}"
        if kind == "Finding":
            kind = None if _is_warning(node) else "PreflightError"
        source = ast.unparse(node)
        where = f"src/{module}:{node.lineno}"
        yield Site(where, source, kind or None, frozenset(codes), problem)


@cache
def sites() -> list[Site]:
    """All constructions in `src`."""
    classes = _classes()
    return [site for path in sorted(SRC.rglob("*.py")) for site in _sites_of(path, classes)]


def test_every_error_and_finding_passes_a_code_of_the_catalogue() -> None:
    wrong = [f"{s.where}: {s.problem}: {s.source[:120]}" for s in sites() if s.problem]
    wrong += [f"{s.where}: {c} is not in the catalogue" for s in sites() for c in s.codes - CATALOGUE.keys()]
    assert not wrong, "\n".join(["give these a code of tailrace.error_catalogue:", *wrong])


def test_every_code_of_the_catalogue_is_used() -> None:
    used = {code for site in sites() for code in site.codes}
    assert sorted(CATALOGUE.keys() - used) == []


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_catalogue_names_the_classes_that_report_a_code(code: str) -> None:
    found = {site.kind for site in sites() if code in site.codes and site.kind}
    assert {cls.__name__ for cls in CATALOGUE[code].errors} == found


def test_codes_are_sorted_and_belong_to_a_subject() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    assert [code for code in CATALOGUE if not CODE.fullmatch(code)] == []
    assert list(SUBJECTS) == sorted({code[3:5] for code in CATALOGUE})


def test_titles_of_conditions_differ() -> None:
    titles = [condition.title for condition in CATALOGUE.values()]
    assert len(titles) == len(set(titles))


def test_page_of_errors_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make error-page`"
