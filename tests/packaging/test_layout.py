"""How the repository is laid out: modules in folders, tests beside what they test, imports one way."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.import_graph import circles, imports, inside

_ROOT = Path(__file__).parents[2]
_UNIT = _ROOT / "tests" / "unit"
#: The folders whose structure `tests/unit` repeats: `src/tailrace` without its name, others with theirs.
_MIRRORED = (_ROOT / "src" / "tailrace", _ROOT / "src", _ROOT)
#: Tests of documents are about all of them, not about one.
_DOCUMENTS = _UNIT / "docs"
_DATABASES = ("mysql", "oracle", "postgres")
#: Most modules and folders in a folder of a database.
_MOST = 14


def test_each_unit_test_is_named_after_a_module_and_lies_where_it_does() -> None:
    tests = [path for path in _UNIT.rglob("test_*.py") if _DOCUMENTS not in path.parents]
    assert len(tests) > 40
    assert not [str(path.relative_to(_ROOT)) for path in tests if not _subject_exists(path)]


def _subject_exists(test: Path) -> bool:
    subject = test.relative_to(_UNIT).with_name(test.stem.removeprefix("test_"))
    return any(
        (root / subject).with_suffix(".py").exists() or (root / subject).is_dir() for root in _MIRRORED
    )


def test_imports_of_modules_and_of_packages_form_no_circle() -> None:
    graph = imports(_ROOT / "src")
    databases = [f"tailrace.sources.{name}" for name in _DATABASES]
    folders = ("tailrace", "tailrace.sources", *databases)
    assert len(graph) > 300
    assert not circles(graph)
    assert not {folder: found for folder in folders if (found := circles(inside(graph, folder)))}


def test_folders_of_databases_are_small() -> None:
    graph = imports(_ROOT / "src")
    folders = {module.rpartition(".")[0] for module in graph}
    sizes = {
        folder: len(inside(graph, folder))
        for folder in folders
        if folder.startswith(tuple(f"tailrace.sources.{name}" for name in _DATABASES))
    }
    assert len(sizes) > 10
    assert not {folder: size for folder, size in sizes.items() if size > _MOST}


def test_public_class_names_occur_once_but_for_what_both_databases_fill() -> None:
    homes: dict[str, list[str]] = {}
    for path in (_ROOT / "src" / "tailrace").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(_ROOT / "src" / "tailrace")))
    assert len(homes) > 300
    assert not {
        name: sorted(found)
        for name, found in homes.items()
        if len(found) > 1 and not _of_different_databases(found)
    }


def _of_different_databases(homes: list[str]) -> bool:
    """Whether each of some modules is of another database: they have the same roles."""
    places = [tuple(home.split("/")[:2]) for home in homes]
    return len(set(places)) == len(places) and set(places) <= {("sources", name) for name in _DATABASES}
