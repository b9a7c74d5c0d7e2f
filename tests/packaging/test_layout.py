"""Where tests lie: `tests/unit` mirrors `src/tailrace`, and what else the repository has beside it."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[2]
_UNIT = _ROOT / "tests" / "unit"
#: The folders whose structure `tests/unit` repeats: `src/tailrace` without its name, others with theirs.
_MIRRORED = (_ROOT / "src" / "tailrace", _ROOT / "src", _ROOT)
#: Tests of documents are about all of them, not about one.
_DOCUMENTS = _UNIT / "docs"


def test_each_unit_test_is_named_after_a_module_and_lies_where_it_does() -> None:
    tests = [path for path in _UNIT.rglob("test_*.py") if _DOCUMENTS not in path.parents]
    assert len(tests) > 40
    assert not [str(path.relative_to(_ROOT)) for path in tests if not _subject_exists(path)]


def _subject_exists(test: Path) -> bool:
    subject = test.relative_to(_UNIT).with_name(test.stem.removeprefix("test_"))
    return any(
        (root / subject).with_suffix(".py").exists() or (root / subject).is_dir() for root in _MIRRORED
    )
