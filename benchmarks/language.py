"""Count the docstrings that are fragments and the comments per 100 lines, folder by folder.

    python -m benchmarks.language                          # the whole tree
    python -m benchmarks.language optimizer --depth 2      # one folder, with its subfolders
    python -m benchmarks.language optimizer/live --list    # name every fragment

The rules are heuristics over the first sentence of a docstring:

- A function's sentence opens with a verb in the imperative mood, taken from `imperatives.txt`.
- A sentence of a class, a module or a test does the same, or has a finite verb outside its relative clauses.
- No sentence opens with a word such as "What", "Whoever" or "Same", whatever follows.
- A word that is also a noun does not count as a verb where it is used as a noun ("Name of the column").

A comment counts when it has its line to itself and is no instruction to a tool. Migrations, the shipped problems and
the deliberately misbehaving candidates of `tests/cheats` are left out: they are data rather than this project's prose.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("optimizer", "runners", "kernelsci_site", "kernelsci", "benchmarks", "tests")
LEFT_OUT = ("/migrations/", "runners/problems/shipped/", "tests/cheats/fixtures/", "tests/cheats/preludes/")


def word_set(text: str) -> frozenset[str]:
    """Split a text into the set of its words."""
    return frozenset(text.split())


IMPERATIVES = word_set(Path(__file__).with_name("imperatives.txt").read_text(encoding="utf-8"))

RIDDLES = word_set(
    "what who whom whose where whether whatever whoever whichever which how why those its same everything"
)
AUXILIARIES = word_set(
    "is are was were be has have had does do did can could may might must will would shall should needs"
)
NOUN_TOO = re.compile(r"\w+(?: of\b|:|$|, (?!(?:and|or|then|for|with|under|in)\b)(\w+))")
BEFORE_A_NOUN = word_set(
    "a an the all any each every no one two three other another same its their his our your of in on at by for from "
    "with without to as and or per both such these those this that newest oldest last first"
)
RELATIVE = re.compile(r"\b(?:that|which|who|whom|whose|where|when|while|whether|what|how|if|as|than)\b[^,.;:]*")
TOOL_COMMENT = re.compile(r"#\s*(?:!|noqa|type:|pragma|mypy:|ruff:|fmt:|-\*-)")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """Add up what was counted in one folder."""

    lines: int = 0
    comments: int = 0
    docstrings: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    fragments: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def main() -> int:
    """Print one row per folder, and with `--list` every fragment. Return 1 when a share exceeds `--limit` percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=ROOTS, help="files or folders (default: the whole tree)")
    parser.add_argument("--depth", type=int, default=1, help="how many folders deep the rows go")
    parser.add_argument("--list", action="store_true", help="name every fragment")
    parser.add_argument("--limit", type=float, help="fail above this percentage of fragments")
    options = parser.parse_args()
    table = count(options.paths, options.depth)
    worst = print_table(table)
    if options.list:
        for row in table.values():
            for line in sorted(line for lines in row.fragments.values() for line in lines):
                print(line)
    return int(options.limit is not None and worst > options.limit)


def count(paths: list[str], depth: int) -> dict[str, Counts]:
    """Return the counts of every folder, named by its first `depth` parts."""
    table: dict[str, Counts] = defaultdict(Counts)
    for path in python_files(paths):
        folder = "/".join(path.parts[: min(depth, len(path.parts) - 1)])
        add_file(table[folder], path)
    return dict(sorted(table.items()))


def python_files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python files below the paths, without the folders that hold data."""
    for root in map(Path, paths):
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if not any(part in path.as_posix() for part in LEFT_OUT):
                yield path


def add_file(counts: Counts, path: Path) -> None:
    """Add one file's lines, comments and docstrings to the counts."""
    source = path.read_text(encoding="utf-8")
    counts.lines += source.count("\n")
    counts.comments += full_line_comments(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            kind = kind_of(node)
            counts.docstrings[kind] += 1
            if is_fragment(text, kind):
                counts.fragments[kind].append(f"{path}:{getattr(node, 'lineno', 1)}: {first_sentence(text)}")


def kind_of(node: Documented) -> str:
    """Return "module", "class", "test" or "function"."""
    if isinstance(node, ast.Module):
        return "module"
    if isinstance(node, ast.ClassDef):
        return "class"
    return "test" if node.name.startswith("test_") else "function"


def full_line_comments(source: str) -> int:
    """Count the comments that have a line to themselves."""
    found = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        alone = token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
        found += alone and not TOOL_COMMENT.match(token.string)
    return found


def is_fragment(docstring: str, kind: str) -> bool:
    """Return whether the docstring's first sentence breaks the rules that the module describes."""
    sentence = first_sentence(docstring)
    words = re.findall(r"[\w'’-]+", sentence)
    if not words or words[0].lower() in RIDDLES:
        return True
    if opens_with_imperative(sentence):
        return False
    return kind == "function" or not has_finite_verb(sentence)


def first_sentence(docstring: str) -> str:
    """Return the text up to the first full stop, without a leading `name`: and with code spans reduced to a word."""
    text = " ".join(docstring.split("\n\n")[0].split())
    text = re.sub(r"^`[^`]*`: ", "", text)
    return re.split(r"(?<=[.!?])\s", text)[0]


def opens_with_imperative(sentence: str) -> bool:
    """Return whether the sentence opens with a known verb that is not used as a noun."""
    match = re.match(r"[A-Za-z-]+", sentence)
    if match is None or match.group().lower() not in IMPERATIVES:
        return False
    noun = NOUN_TOO.match(sentence)
    return noun is None or (noun.group(1) or "").lower() in IMPERATIVES


def has_finite_verb(sentence: str) -> bool:
    """Return whether a finite verb stands outside the sentence's relative and subordinate clauses."""
    words = re.findall(r"[\w'’-]+|[,;:]", RELATIVE.sub(" ", sentence.lower()))
    for before, word in zip(["", *words], words, strict=False):
        if word in AUXILIARIES:
            return True
        third_person = {word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)} - {word}
        as_noun = before in BEFORE_A_NOUN or before.endswith(("'s", "’s", "s'")) or before in {"", ",", ";", ":"}
        if third_person & IMPERATIVES and not as_noun:
            return True
    return False


def print_table(table: dict[str, Counts]) -> float:
    """Print one row per folder and return the largest share of fragments, in percent."""
    print(
        f"{'folder':<28}{'lines':>8}{'comments':>10}{'/100':>6}{'docstrings':>12}{'fragments':>11}{'%':>7}   by kind"
    )
    worst = 0.0
    for folder, row in table.items():
        documented, broken = sum(row.docstrings.values()), sum(map(len, row.fragments.values()))
        share = 100 * broken / documented if documented else 0.0
        worst = max(worst, share)
        kinds = ", ".join(f"{kind} {len(row.fragments[kind])}/{total}" for kind, total in row.docstrings.items())
        density = 100 * row.comments / max(1, row.lines)
        counted = f"{row.lines:>8}{row.comments:>10}{density:>6.1f}{documented:>12}{broken:>11}{share:>7.1f}"
        print(f"{folder:<28}{counted}   {kinds}")
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
