"""Search the shipped pages by full text (Okapi BM25), and choose those that help with a task.

Robertson, Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with words of the title and the
front matter counted several times.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from optimizer.knowledge.kinds import kinds_of
from optimizer.knowledge.library import OVERVIEW, Page, pages
from runners.job import Language

# The usual parameters of BM25: saturation of repeated words, and weight of a document's length.
K1, B = 1.2, 0.75
TITLE_WEIGHT, FIELD_WEIGHT = 4, 2
# A query beyond these characters is cut: it may come from a model.
MAX_QUERY = 2_000
MAX_RESULTS = 20
# A page is worth more for a task if it addresses what limits the kernel, is about the same kind of work, and shows
# code in the run's language. The full text decides between pages that are alike in these.
BOTTLENECK_POINTS, KIND_POINTS, LANGUAGE_POINTS = 1.0, 1.0, 1.0
# Kinds of work whose pages help no other kind: unpacking 4-bit weights is of no use to a product in bfloat16, even
# though both are products. The first kind that a page lists is what it is about.
SPECIAL_KINDS = frozenset({"attention", "quantised", "ragged"})
_WORD = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Task:
    """Describe a task that pages should help with: the problem's text, target and language, and the kernel's limits.

    `vector` holds the instruction sets of the machine, None where they are unknown.
    """

    text: str
    target: str
    language: Language | None = None
    bottlenecks: frozenset[str] = frozenset()
    vector: frozenset[str] | None = None


def search_knowledge(query: str, target: str, limit: int, vector: frozenset[str] | None = None) -> list[Page]:
    """Return at most `limit` pages that apply to the target and contain words of the query, best first.

    An empty target searches all pages. Pages that need other instruction sets than those of `vector` are left out,
    unless it is None. At most `MAX_RESULTS` pages are returned, whatever the limit.
    """
    scores = _scores(query, target)
    found = [one for one in pages() if scores.get(one.name, 0.0) > 0 and one.runs_on(vector)]
    found.sort(key=lambda one: (-scores[one.name], one.name))
    return found[: max(0, min(limit, MAX_RESULTS))]


def pages_for(task: Task) -> list[Page]:
    """Return the pages that apply to the task and its machine, the most helpful first; overviews are left out.

    A page about other kinds of work is left out, where the task's kinds are known; where only its limits are known, a
    page about other limits is.
    """
    scores = _scores(task.text, task.target)
    highest = max(scores.values(), default=0.0) or 1.0
    kinds = kinds_of(task.text)

    def worth(one: Page) -> float:
        """Add up the page's points; each part lies between 0 and its maximum."""
        points = scores[one.name] / highest
        points += BOTTLENECK_POINTS * bool(task.bottlenecks & set(one.bottlenecks))
        points += KIND_POINTS * len(kinds & set(one.kinds)) / max(1, len(kinds))
        return points + LANGUAGE_POINTS * (task.language is not None and one.language == task.language)

    def concerns(one: Page) -> bool:
        """Return whether the page is about the task's kind of work; its limits decide where no kind is known."""
        if not kinds:
            return not task.bottlenecks or bool(task.bottlenecks & set(one.bottlenecks))
        special = one.kinds[0] in SPECIAL_KINDS and one.kinds[0] not in kinds
        return bool(kinds & set(one.kinds)) and not special

    here = [one for one in pages() if one.holds_for(task.target) and one.runs_on(task.vector)]
    fitting = [one for one in here if one.topic != OVERVIEW and concerns(one)]
    return sorted(fitting, key=lambda one: (-worth(one), one.name))


def _scores(query: str, target: str) -> dict[str, float]:
    """Return the BM25 score of every page that applies to the target."""
    index = _index()
    wanted = set(_words(query[:MAX_QUERY]))
    return {one.name: index.score(one.name, wanted) for one in pages() if one.holds_for(target)}


@dataclass(frozen=True)
class Index:
    """Hold word counts by page, lengths and the number of pages with each word."""

    counts: dict[str, Counter[str]]
    lengths: dict[str, int]
    containing: Counter[str]

    @cached_property
    def mean_length(self) -> float:
        """Return the average number of words of a page."""
        return sum(self.lengths.values()) / len(self.lengths)

    def score(self, name: str, words: Iterable[str]) -> float:
        """Return the page's BM25 score for the words."""
        return sum(self._weight(name, word) for word in words if word in self.counts[name])

    def _weight(self, name: str, word: str) -> float:
        count, total = self.counts[name][word], len(self.counts)
        rarity = math.log(1 + (total - self.containing[word] + 0.5) / (self.containing[word] + 0.5))
        return rarity * count * (K1 + 1) / (count + K1 * (1 - B + B * self.lengths[name] / self.mean_length))


@cache
def _index() -> Index:
    counts = {one.name: _counted(one) for one in pages()}
    lengths = {name: counted.total() for name, counted in counts.items()}
    return Index(counts, lengths, Counter(word for counted in counts.values() for word in counted))


def _counted(one: Page) -> Counter[str]:
    fields = " ".join((one.name, one.topic, *one.bottlenecks, *one.kinds, *one.targets))
    weighted = [*_words(one.title) * TITLE_WEIGHT, *_words(fields) * FIELD_WEIGHT]
    return Counter([*weighted, *_words(one.text), *_words(one.snippet)])


def _words(text: str) -> list[str]:
    """Split into lower-case words without a plural s; a name with underscores also gives its parts."""
    found = _WORD.findall(text.lower())
    parts = [part for word in found if "_" in word for part in word.split("_") if part]
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in [*found, *parts]]
