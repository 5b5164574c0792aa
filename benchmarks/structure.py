"""Count the import cycles between folders and between files, and the modules at the top of each package.

    python -m benchmarks.structure                     # the product's three packages
    python -m benchmarks.structure optimizer --list    # with the imports that close each cycle

Every import statement counts, also inside functions and under `TYPE_CHECKING`, and so does `import_module("…")`. Two
files, or two folders, are in one cycle when each leads to the other over imports; a cycle is one strongly connected
component with more than one member.

- Between files: the members are modules.
- Between folders: the members are the subfolders and modules of one folder, at every depth. A folder stands for
  everything below it, so `search/machinery` may import `search/base.py` as long as nothing leads back.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("optimizer", "runners", "kernelsci_site")
LEFT_OUT = ("/migrations/", "runners/problems/shipped/")
Graph = Mapping[str, set[str]]
Edge = tuple[str, str]


@dataclass(frozen=True)
class Structure:
    """Hold what was counted in one package. Modules are named with dots; `edges` are all imports within it."""

    package: str
    modules: int
    at_top: list[str]
    edges: set[Edge]
    between_files: list[list[str]]
    between_folders: list[list[str]]


def main() -> int:
    """Print one row per package, and with `--list` every cycle. Return 1 when there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="folders (default: the whole product)")
    parser.add_argument("--list", action="store_true", help="name the members and imports of every cycle")
    options = parser.parse_args()
    found = [structure_of(Path(package)) for package in options.packages]
    print(f"{'package':<18}{'modules':>9}{'at top':>8}{'file cycles':>13}{'folder cycles':>15}")
    for one in found:
        counts = f"{one.modules:>9}{len(one.at_top):>8}{len(one.between_files):>13}{len(one.between_folders):>15}"
        print(f"{one.package:<18}{counts}")
        if options.list:
            print_cycles(one)
    return int(any(one.between_files or one.between_folders for one in found))


def structure_of(package: Path) -> Structure:
    """Read every module below a package's folder and count."""
    files = {module_name(path, package): path for path in python_files(package)}
    edges = {(name, other) for name, path in files.items() for other in imports_of(name, path, files)}
    return Structure(
        package.name,
        len(files),
        sorted(path.name for path in package.glob("*.py") if path.name != "__init__.py"),
        edges,
        components(graph_of(edges)),
        [cycle for siblings in sibling_edges(edges).values() for cycle in components(graph_of(siblings))],
    )


def python_files(package: Path) -> Iterator[Path]:
    """Yield the package's modules, without migrations and the shipped problems."""
    for path in sorted(package.rglob("*.py")):
        if not any(part in path.as_posix() for part in LEFT_OUT):
            yield path


def module_name(path: Path, package: Path) -> str:
    """Return the dotted name under which a file is imported."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(name: str, path: Path, files: Mapping[str, Path]) -> set[str]:
    """Return the package's own modules that a module imports, itself excepted."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for wanted in names_in(node, package):
            # `from a.b import c` imports the module a.b.c where there is one, and the module a.b otherwise.
            module = wanted if wanted in files else wanted.rpartition(".")[0]
            found |= {module} & files.keys()
    return found - {name}


def names_in(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a statement imports, seen from a module of `package`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant))


def sibling_edges(edges: set[Edge]) -> Mapping[str, set[Edge]]:
    """Return, for each folder, the edges between its own subfolders and modules."""
    found: dict[str, set[Edge]] = defaultdict(set)
    for name, other in edges:
        a, b = name.split("."), other.split(".")
        shared = next((n for n, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), None)
        # A folder's `__init__.py` and the modules below it are no siblings.
        if shared is not None:
            found[".".join(a[:shared])].add((".".join(a[: shared + 1]), ".".join(b[: shared + 1])))
    return found


def graph_of(edges: set[Edge]) -> Graph:
    """Return the edges as the set of successors of every node."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name, other in edges:
        graph[name].add(other)
        graph[other] |= set()
    return graph


def components(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components with more than one member, each sorted."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {frozenset({node} | {other for other in reached[node] if node in reached[other]}) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = graph[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def print_cycles(one: Structure) -> None:
    """Print the members of every cycle and the imports between them."""
    for kind, cycles in (("files", one.between_files), ("folders", one.between_folders)):
        for cycle in cycles:
            print(f"  {kind}: {', '.join(cycle)}")
            for name, other in sorted(one.edges):
                ends = [_member(cycle, end) for end in (name, other)]
                if None not in ends and ends[0] != ends[1]:
                    print(f"    {name} -> {other}")


def _member(cycle: list[str], module: str) -> str | None:
    return next((member for member in cycle if module == member or module.startswith(f"{member}.")), None)


if __name__ == "__main__":
    raise SystemExit(main())
