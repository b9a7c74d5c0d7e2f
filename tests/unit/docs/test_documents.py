"""What the documents say exists: options, keys of pipeline files, paths, anchors and links.

A fenced block of YAML is a whole pipeline or a part of one. A part (`transform:` alone, say) is completed
with the least that a pipeline needs, so that the real loader reads it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.peers import differences
from tailrace.config.load import parse_pipelines
from tailrace.config.options import OPTIONS, parse_options

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("README*.md"),
        ROOT / "CONTRIBUTING.md",
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
SECTIONS = {"source", "sources", "transform", "route", "sink", "pipeline"}
LEAST: dict[str, Any] = {
    "source": {"type": "mysql", "hostname": "h", "username": "u", "tables": "a.b"},
    "sink": {"type": "console"},
    "pipeline": {"checkpoint": "/c"},
}
#: A fence, its language, its text; indented ones, as in lists, too.
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks(language: str) -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match[2] == language:
                line = text.count("\n", 0, match.start()) + 1
                body = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
                yield pytest.param(body, id=f"{_name(page)}:{line}")


def _pipelines() -> Iterator[Any]:
    for block in _blocks("yaml"):
        given = yaml.safe_load(block.values[0])
        if isinstance(given, dict) and given.keys() & SECTIONS:
            yield block
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        if "deployment" in file.parts:  # Kubernetes', and Helm's
            continue
        yield pytest.param(file.read_text(encoding="utf-8"), id=_name(file))


@pytest.mark.parametrize("text", list(_pipelines()))
def test_pipeline_in_a_document_is_read_by_the_loader(text: str) -> None:
    given = yaml.safe_load(text)
    parts = LEAST | given
    parts["pipeline"] = LEAST["pipeline"] | parts["pipeline"]
    if "source" in given and not {"url", "hostname"} & given["source"].keys():
        # A few options of a source: the rest is what every source needs.
        parts["source"] = LEAST["source"] | given["source"]
    if "sources" in given:
        del parts["source"]
    assert parse_pipelines(yaml.safe_dump(parts))


def _options_of(call: ast.Call) -> dict[str, str]:
    """The options that a chain of `.option(...)` and `.options(...)` sets, where they are literals."""
    found: dict[str, str] = {}
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "option" and isinstance(node.args[0], ast.Constant):
            value = node.args[1]
            found[node.args[0].value] = str(value.value) if isinstance(value, ast.Constant) else ""
        if node.func.attr == "options":
            found |= {k.arg: str(ast.literal_eval(k.value)) for k in node.keywords if k.arg}
        if node.func.attr == "format" and isinstance(node.args[0], ast.Constant):
            return found if node.args[0].value == "tailrace" else {}
        node = node.func.value
    return {}


def _python_sources() -> Iterator[Any]:
    yield from _blocks("python")
    for file in sorted((ROOT / "examples").rglob("*.py")):
        yield pytest.param(file.read_text(encoding="utf-8"), id=_name(file))


@pytest.mark.parametrize("text", list(_python_sources()))
def test_python_in_a_document_parses_and_names_options_that_exist(text: str) -> None:
    least = {"url": "mysql://h", "user": "u", "tables": "a.b"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and (options := _options_of(node)):
            parse_options(least | {name: value for name, value in options.items() if value})


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MkDocs make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    slugs = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower()) for h in headings)
    return {slug.strip().replace(" ", "-") for slug in slugs}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_of_a_document_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


def _named_in_code() -> Iterator[Any]:
    files = [p for d in ("src", "tests", "bench") for p in sorted((ROOT / d).rglob("*.py"))]
    for file in [*files, ROOT / "Makefile", ROOT / "pyproject.toml"]:
        for path in sorted(set(re.findall(r"\bdocs/[\w./-]*[\w/](?:#[\w-]+)?", file.read_text("utf-8")))):
            yield pytest.param(path, id=f"{_name(file)}-{path}")


@pytest.mark.parametrize("named", list(_named_in_code()))
def test_document_that_the_code_names_exists(named: str) -> None:
    path, _, anchor = named.partition("#")
    assert (ROOT / path).exists()
    assert not anchor or anchor in _anchors(ROOT / path)


def _in_code(name: str) -> bool:
    """Whether `name` is a module, a package or a class in a module below `src`."""
    module, _, last = name.rpartition(".")
    for path, symbol in ((name, None), (module, last)):
        base = ROOT / "src" / path.replace(".", "/")
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if file.exists() and (symbol is None or f"class {symbol}" in file.read_text("utf-8")):
            return True
    return False


def test_glossary_names_modules_and_classes_that_exist() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    assert [n for n in sorted(set(re.findall(r"`(tailrace[\w.]+)`", text))) if not _in_code(n)] == []


def test_glossary_defines_each_word_once() -> None:
    words = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word for word in words if word != "Word"]
    assert len(words) == len(set(words))


def test_every_page_is_in_the_site_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}
    assert sorted(page for page in pages if f" {page}\n" not in text) == []


def test_every_option_of_the_source_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "options.md").read_text(encoding="utf-8")
    assert [o.name for o in OPTIONS if f"`{o.name}`" not in text] == []


def test_differences_from_debezium_are_those_that_the_comparison_allows() -> None:
    text = differences.DOCUMENT.read_text(encoding="utf-8")
    assert text == differences.written(text), "run: python -m bench.peers.differences"


def test_makefile_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        name
        for page in [*PAGES, *(ROOT / ".github").rglob("*.y*ml")]
        for name in re.findall(r"(?:`|^|run: )make ([a-z][a-z-]*)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert sorted(named - targets) == []


#: Phrases that no native speaker writes; CONTRIBUTING.md asks for plain English.
_CALQUES = re.compile(
    r"\b(mend(s|ed|ing)?|(is|are|was|were) told|gone on with|put back|is waited for|c[ao]me to grief"
    r"|tells? of|nothing of the kind|of before)\b",
    re.IGNORECASE,
)


def test_text_has_no_calques() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *PAGES, ROOT / "CHANGELOG.md"]
    assert len(sources) > 300
    assert not [
        f"{_name(path)}:{number}: {match[0]}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := _CALQUES.search(line))
    ]
