"""The graph of imports, and the picture of it in docs/contribute/architecture.md.

    git archive 16a99e6 src | tar -x -C /tmp/before
    python -m tests.support.import_graph /tmp/before/src src > docs/img/imports.svg

A box is a module or folder of `tailrace`, with its number of modules, above everything that it imports. An
arrow is drawn unless a longer way says the same; red ones run up.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import permutations
from pathlib import Path

Graph = Mapping[str, frozenset[str]]

_LIST = """
import sys, grimp
sys.path.insert(0, sys.argv[1])
graph = grimp.build_graph("tailrace", cache_dir=None)
for module in graph.modules:
    print(module, *graph.find_modules_directly_imported_by(module))
"""
_WIDTH, _ROW, _BOX, _HEIGHT, _TOP = 640, 62, 84, 34, 64
_STYLE = (
    "<style>rect{fill:#e6f2f1;stroke:#00796b}text{font:12px sans-serif;text-anchor:middle}"
    ".title{font-weight:bold;font-size:16px}path{fill:none;marker-end:url(#tip)}"
    ".down{stroke:#9aa5a4}.up{stroke:#c62828;stroke-width:2.5}</style>"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6"'
    ' orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#777;marker-end:none"/></marker></defs>'
    '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>'
)


@cache
def imports(sources: Path) -> Graph:
    """The modules of `tailrace` in a directory of sources, and which modules each imports."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST, str(sources)], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {module: frozenset(imported) for module, *imported in lines}


def circles(graph: Graph) -> list[frozenset[str]]:
    """Sets of two or more nodes each of which reaches all others."""

    def reach(start: str) -> frozenset[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph[ahead.pop()] - seen
            seen |= new
            ahead += new
        return frozenset(seen)

    ways = {node: reach(node) for node in graph}
    found = {frozenset(other for other in ways[node] if node in ways[other]) for node in graph}
    return [circle for circle in found if len(circle) > 1]


def inside(graph: Graph, folder: str) -> dict[str, frozenset[str]]:
    """The graph of the modules and folders directly below a folder."""

    def entry(module: str) -> str | None:
        rest = module.removeprefix(f"{folder}.")
        return None if rest == module else rest.partition(".")[0]

    found: dict[str, set[str]] = {}
    for module, imported in graph.items():
        if (name := entry(module)) is not None:
            others = {other for each in imported if (other := entry(each)) not in (None, name)}
            found.setdefault(name, set()).update(others)  # type: ignore[arg-type]
    return {name: frozenset(others) for name, others in found.items()}


def running_up(graph: Graph, packages: Graph) -> dict[tuple[str, str], int]:
    """Pairs of packages of which the first imports the second from below, with the number of such imports."""
    between = Counter(
        (module.split(".")[1], name.split(".")[1])
        for module, imported in graph.items()
        for name in imported
        if "." in module and "." in name
    )

    def up(order: Iterable[str]) -> dict[tuple[str, str], int]:
        seen = list(order)
        return {
            (b, a): between[b, a]
            for i, a in enumerate(seen)
            for b in seen[i + 1 :]
            if between[b, a] and b != a
        }

    found: dict[tuple[str, str], int] = {}
    for circle in circles(packages):
        found |= min(map(up, permutations(sorted(circle))), key=lambda pairs: sum(pairs.values()))
    return found


def _drawn(title: str, graph: Graph, left: int) -> tuple[list[str], int]:
    packages = inside(graph, "tailrace")
    up = running_up(graph, packages)
    down = {a: frozenset(b for b in bs if (a, b) not in up) for a, bs in packages.items()}

    @cache
    def level(name: str) -> int:
        return 1 + max(map(level, down[name]), default=-1)

    rows: dict[int, list[str]] = {}
    for name in sorted(packages):
        rows.setdefault(level(name), []).append(name)
    places = {}
    for i, names in rows.items():
        gap = _WIDTH / (len(names) + 1)
        for j, name in enumerate(names):
            places[name] = left + gap * (j + 1), _TOP + _ROW * (max(rows) - i)
    modules = Counter(module.split(".")[1] for module in graph if "." in module)

    def arrow(a: str, b: str, kind: str) -> str:
        (x, y), (u, v) = places[a], places[b]
        way = (y + _HEIGHT, v) if v > y else (y, v + _HEIGHT)
        return f'<path class="{kind}" d="M{x:.0f} {way[0]:.0f} L{u:.0f} {way[1]:.0f}"/>'

    def needed(a: str, b: str) -> bool:
        return not any(_reaches(down, other, b) for other in down[a] - {b})

    lines = [f'<text class="title" x="{left + _WIDTH / 2:.0f}" y="24">{title}</text>']
    facts = f"modules: {len(graph)}, circles: {len(circles(graph))}, imports that run up: {sum(up.values())}"
    lines.append(f'<text x="{left + _WIDTH / 2:.0f}" y="44">{facts}</text>')
    lines += [arrow(a, b, "down") for a in sorted(down) for b in sorted(down[a]) if needed(a, b)]
    lines += [arrow(a, b, "up") for a, b in sorted(up)]
    for name, (x, y) in places.items():
        count = f" {modules[name]}" if modules[name] > 1 else ""
        lines.append(f'<rect x="{x - _BOX / 2:.0f}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="5"/>')
        lines.append(f'<text x="{x:.0f}" y="{y + 21}">{name}{count}</text>')
    return lines, _TOP + _ROW * (max(rows) + 1)


def _reaches(graph: Graph, a: str, b: str) -> bool:
    return b in graph[a] or any(_reaches(graph, other, b) for other in graph[a])


def main() -> None:
    """Print the picture of two versions."""
    pictures = [
        _drawn(title, imports(Path(sources).resolve()), i * _WIDTH)
        for i, (title, sources) in enumerate(zip(("before", "after"), sys.argv[1:], strict=True))
    ]
    height = max(bottom for _, bottom in pictures)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {height}">',
        _STYLE,
        *(line for drawn, _ in pictures for line in drawn),
        "</svg>",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
