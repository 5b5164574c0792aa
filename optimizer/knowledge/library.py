"""Read the shipped pages below `pages/`: one Markdown file per page, and a snippet of the same name.

A page begins with front matter, lines `name: value` up to a line `---`:

    title        what the page is about
    targets      prefixes of the target keys to which it applies, comma-separated: `sm_90`, `gfx` for all AMD GPUs
    topic        one of `TOPICS`
    bottlenecks  limits that it helps to overcome, comma-separated, from `BOTTLENECKS`
    kinds        kinds of work for which it matters, comma-separated, from `optimizer.knowledge.kinds.KINDS`; the page
                 is about the first
    requires     instruction sets that the snippet needs, comma-separated, named as in /proc/cpuinfo: `avx512f`
    interpreted  `no` where Triton's interpreter cannot execute the snippet, so that only a GPU can
    emits        a regular expression that the snippet's machine code contains; once per instruction
    source       a document with its section and address; once per document

A snippet is compiled, and where its hardware is there executed, by the tests. Its part above the line `CHECK` is shown
to people and agents. The part below compares it with a plain implementation and exits with 0 where they agree.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.job import Language

FOLDER = Path(__file__).parent / "pages"
CHECK = "--- check ---"
OVERVIEW = "overview"
TOPICS = frozenset({OVERVIEW, "matrix units", "memory", "scheduling", "reductions", "algorithms", "precision"})
BOTTLENECKS = frozenset(
    {"compute", "memory", "latency", "launch", "registers", "occupancy", "shared memory", "load balance"}
)
_SNIPPETS = {
    ".cu": Language.CUDA,
    ".hip": Language.HIP,
    ".cpp": Language.CPP,
    ".py": Language.TRITON,
}


@dataclass(frozen=True)
class Page:
    """Hold one page. `name` is `<folder>/<file>`; `snippet` is the shown part of the snippet's source, in `language`.

    `path` is the file of the whole snippet with its check, None where there is no snippet. `emits` are patterns of the
    machine code, `requires` the instruction sets of a CPU without which the snippet cannot be executed. `interpreted`
    says whether Triton's interpreter can execute a snippet in Triton.
    """

    name: str
    title: str
    targets: tuple[str, ...]
    topic: str
    bottlenecks: tuple[str, ...]
    kinds: tuple[str, ...]
    sources: tuple[str, ...]
    text: str
    emits: tuple[str, ...] = ()
    snippet: str = ""
    language: Language | None = None
    path: Path | None = None
    requires: tuple[str, ...] = ()
    interpreted: bool = True

    def holds_for(self, target: str) -> bool:
        """Return whether the page applies to that target key; every page applies to an empty one."""
        return not target or target.startswith(self.targets)

    def runs_on(self, vector: frozenset[str] | None) -> bool:
        """Return whether a CPU with those instruction sets can execute the snippet; None says that they are unknown."""
        return vector is None or vector.issuperset(self.requires)

    @property
    def markdown(self) -> str:
        """Return text, snippet and sources as one Markdown document."""
        fence = {Language.TRITON: "python", None: ""}.get(self.language, "cpp")
        snippet = f"```{fence}\n{self.snippet}\n```" if self.snippet else ""
        sources = "Sources:\n" + "\n".join(f"- {source}" for source in self.sources)
        return "\n\n".join(part for part in (self.text, snippet, sources) if part)


@cache
def pages() -> tuple[Page, ...]:
    """Return all shipped pages, ordered by name. Raises ValueError for a page with faulty front matter."""
    return tuple(read_page(path) for path in sorted(FOLDER.glob("*/*.md")))


def page(name: str) -> Page:
    """Return the page of that name. Raises KeyError where there is none."""
    return {one.name: one for one in pages()}[name]


def read_page(path: Path) -> Page:
    """Parse a page and its snippet. Raises ValueError naming the file and the missing field."""
    head, _, text = path.read_text().partition("\n---\n")
    fields: dict[str, list[str]] = defaultdict(list)
    for line in head.splitlines():
        name, _, value = line.partition(": ")
        fields[name].append(value.strip())
    if missing := {"title", "targets", "topic", "source"} - fields.keys():
        raise ValueError(f"{path}: no {', '.join(sorted(missing))}")
    snippet = next((found for suffix in _SNIPPETS if (found := path.with_suffix(suffix)).exists()), None)
    return Page(
        name=f"{path.parent.name}/{path.stem}",
        title=fields["title"][0],
        targets=_listed(fields["targets"]),
        topic=fields["topic"][0],
        bottlenecks=_listed(fields["bottlenecks"]),
        kinds=_listed(fields["kinds"]),
        sources=tuple(fields["source"]),
        text=text.strip(),
        emits=tuple(fields["emits"]),
        snippet=_shown(snippet.read_text()) if snippet else "",
        language=_SNIPPETS[snippet.suffix] if snippet else None,
        path=snippet,
        requires=_listed(fields["requires"]),
        interpreted=_is_interpreted(path, fields["interpreted"]),
    )


def _is_interpreted(path: Path, values: list[str]) -> bool:
    if values not in ([], ["no"]):
        raise ValueError(f"{path}: interpreted is {', '.join(values)}, where `no` is the only value")
    return not values


def _listed(values: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _shown(source: str) -> str:
    """Return the lines above the check."""
    lines = source.splitlines()
    end = next((number for number, line in enumerate(lines) if CHECK in line), len(lines))
    return "\n".join(lines[:end]).strip()
