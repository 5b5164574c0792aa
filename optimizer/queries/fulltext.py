"""Search problems, runs, kernels, hypotheses, findings and comments with PostgreSQL's full-text search.

Each searchable kind is one entry of `SOURCES`. The last word of a query is a prefix, so that results appear while
somebody types. Quotes, `or` and `-` work as in web search engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.search import CombinedSearchQuery, SearchHeadline, SearchQuery, SearchVector
from django.db import connection, transaction
from django.db.models import F, Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat, Left, Replace
from django.urls import reverse

from optimizer.models import Comment, Finding, Hypothesis, Kernel, Membership, Problem, Run, User
from optimizer.models.search_text import (
    COMMENT_WORDS,
    CONFIG,
    FINDING_WORDS,
    HYPOTHESIS_WORDS,
    KERNEL_WORDS,
    PROBLEM_WORDS,
    RUN_WORDS,
)

MAX_TEXT = 200
# Of more matches than this, only the newest are considered.
NEWEST = 1000
# Among this many newest matches, those with a match in their title come first.
RANKED = 200
# If `RANKED` of this many newest rows match, older rows are not searched; where some do, more rows are, step by step.
RECENT = 4000
# How much of a text is searched for its excerpt: PostgreSQL parses it again, at about 3 ms per 10,000 characters.
EXCERPT_FROM = 20_000
EXCERPT_WORDS = 25
EXCERPT = 240
# Control characters: what PostgreSQL puts around a match, and what stands for `<` while it looks for one.
_MATCH, _REST, _LESS = "\x02", "\x03", "\x01"
_PIECE = re.compile(f"([{_MATCH}{_REST}]?)([^{_MATCH}{_REST}]+)")
_BITMAPS_ONLY = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'off', true)"
_ANY_SCAN = "SELECT set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'on', true)"
_LAST_WORD = re.compile(r"^(?P<rest>.*?)(?P<last>[^\W_]+)$", re.DOTALL)

Query = SearchQuery | CombinedSearchQuery


@dataclass(frozen=True)
class Piece:
    """Hold a piece of an excerpt, marked where it matches the query."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Hit:
    """Hold a search result: its title, its context, its address and the part of its text that matches best."""

    kind: str
    title: str
    where: str
    url: str
    pieces: list[Piece]

    @property
    def excerpt(self) -> str:
        """Return the excerpt without marks."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class Source:
    """Describe a kind of searchable row.

    `rows` returns the rows that a person may see; `words` is the indexed expression; `show` returns title, context
    and address; `text` is the expression for the text of the excerpt.
    """

    kind: str
    label: str
    rows: Callable[[User], QuerySet[Any]]
    words: SearchVector
    show: Callable[[Any], tuple[str, str, str]]
    text: F | Concat
    title: str = "title"


@dataclass(frozen=True)
class Matches:
    """Hold ids of matching rows, newest first. `are_all` is False where older ones exist or may exist."""

    ids: list[int]
    are_all: bool


def search(user: User, text: str, kinds: tuple[str, ...] = (), limit: int = 20) -> dict[str, list[Hit]]:
    """Return at most `limit` hits per kind: those with a match in their title first, then the newest."""
    query = query_of(text)
    # An unknown kind matches no source and gives no hits, rather than all.
    wanted = [source for source in SOURCES if not kinds or source.kind in kinds]
    if query is None:
        return {source.kind: [] for source in wanted}
    models = {source.kind: source.rows(user).model for source in wanted}
    # Ids grow with time, so the greatest id tells how far back the newest rows reach without sorting them.
    newest = _newest(list(models.values()))
    with _bitmaps_only():
        matches = {one.kind: _matches(one, models[one.kind], query, newest[models[one.kind]]) for one in wanted}
    return {source.kind: _hits(source, user, query, matches[source.kind], limit) for source in wanted}


def query_of(text: str) -> Query | None:
    """Convert the query into PostgreSQL's form, or return None where there is nothing to search for."""
    text = text.replace("\x00", " ").strip()[:MAX_TEXT]
    found = _LAST_WORD.match(text)
    if not text or (found is None and not re.search(r"\w", text)):
        return None
    # Inside quotes the last word is part of a phrase, where a prefix would have no meaning.
    if found is None or '"' in text:
        return SearchQuery(text, config=CONFIG, search_type="websearch")
    last: Query = SearchQuery(f"{found['last']}:*", config=CONFIG, search_type="raw")
    rest = found["rest"].strip()
    if rest.endswith("-") or not re.search(r"\w", rest):  # "-word" leaves out, and may not be a beginning
        return SearchQuery(text, config=CONFIG, search_type="websearch") if rest else last
    return SearchQuery(rest, config=CONFIG, search_type="websearch") & last


def _hits(source: Source, user: User, query: Query, matches: Matches, limit: int) -> list[Hit]:
    if not matches.ids and matches.are_all:
        return []
    rows = source.rows(user)
    seen = _seen(source, rows, query, matches, limit)
    # Titles first, then newest: a title is the stronger sign, and a rank over whole sources would cost seconds.
    first = dict.fromkeys(pk for pk, is_titled in seen[:RANKED] if is_titled)
    chosen = [*first, *(pk for pk, _ in seen if pk not in first)][:limit]
    found = rows.annotate(headline=_headline(source, query)).in_bulk(chosen)
    return [_hit(source, found[pk]) for pk in chosen if pk in found]


def _newest(models: Sequence[type[Model]]) -> dict[type[Model], int]:
    """Return the greatest id of each table with one query."""
    asked = ", ".join(f'(SELECT max(id) FROM "{model._meta.db_table}")' for model in models)  # noqa: S608 - our own tables
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {asked}")
        return {model: newest or 0 for model, newest in zip(models, cursor.fetchone() or (), strict=True)}


def _matches(source: Source, model: type[Model], query: Query, newest: int) -> Matches:
    """Return matching rows, regardless of who may see them.

    The newest rows are searched first: for a common word the index returns every row, and each would be fetched.
    """
    # Access is checked afterwards: joined into this query, it would make the planner leave the GIN index.
    rows = model._default_manager.annotate(words=source.words).filter(words=query)
    reach, found = RECENT, RANKED
    while found and reach < newest:
        ids = _ids(rows.filter(pk__gt=newest - reach))
        if len(ids) >= RANKED:
            return Matches(ids, are_all=False)
        # As far back as twice as many must be expected: fetching the rows of a word takes longest.
        reach, found = max(2 * reach, 2 * reach * RANKED // max(1, len(ids))), len(ids)
    ids = _ids(rows)
    return Matches(ids, are_all=len(ids) < NEWEST)


def _seen(
    source: Source, rows: QuerySet[Any], query: Query, matches: Matches, limit: int
) -> list[tuple[int, bool]]:
    """Return those of the matches that the person may see, newest first, and whether their titles match.

    Only where too few of very many remain, words and access are combined in one query, which takes longer.
    """
    marked = rows.annotate(titled=SearchVector(source.title, config=CONFIG)).annotate(is_titled=Q(titled=query))
    seen = _visible_ones(marked, matches.ids[:RANKED])
    if len(seen) < RANKED or limit > RANKED:
        # Some are hidden, or more are shown than are ranked: then the rest is looked at too.
        seen += _visible_ones(marked, matches.ids[RANKED:]) if matches.ids[RANKED:] else []
    if matches.are_all or len(seen) >= limit:
        return seen
    with _bitmaps_only():
        return _pairs(marked.annotate(words=source.words).filter(words=query))


def _visible_ones(rows: QuerySet[Any], ids: Sequence[int]) -> list[tuple[int, bool]]:
    return _pairs(rows.filter(pk__in=ids))


def _pairs(rows: QuerySet[Any]) -> list[tuple[int, bool]]:
    return list(rows.order_by("-pk").values_list("pk", "is_titled")[:NEWEST])


def _ids(rows: QuerySet[Any]) -> list[int]:
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:NEWEST])


@contextmanager
def _bitmaps_only() -> Iterator[None]:
    """Allow bitmap scans only.

    The planner underestimates a backward scan of the primary key, which parses every source again and takes a minute
    where few rows match.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_BITMAPS_ONLY)
        yield
        # The settings are local to the transaction, but this may be a savepoint within a longer one.
        cursor.execute(_ANY_SCAN)


def _headline(source: Source, query: Query) -> SearchHeadline:
    """Return the expression for the words around the best match, with a mark around each match."""
    # PostgreSQL leaves out of a headline what looks like an HTML tag, such as the type in `static_cast<float>`.
    text = Replace(Left(source.text, EXCERPT_FROM), Value("<"), Value(_LESS))
    return SearchHeadline(
        text, query, config=CONFIG, start_sel=_MATCH, stop_sel=_REST,
        max_words=EXCERPT_WORDS, min_words=EXCERPT_WORDS // 2, max_fragments=1,
    )  # fmt: skip


def _hit(source: Source, row: Any) -> Hit:
    title, where, url = source.show(row)
    return Hit(source.kind, title or "–", where, url, list(pieces_of(row.headline)))


def pieces_of(headline: str) -> Iterator[Piece]:
    """Split PostgreSQL's headline at its marks, on one line and at most `EXCERPT` characters long."""
    room = EXCERPT
    for sign, text in _PIECE.findall(" ".join(headline.replace(_LESS, "<").split())):
        if shown := text[: max(0, room)]:
            yield Piece(shown, sign == _MATCH)
        room -= len(text)


def _visible(user: User, run: str = "run") -> Q | None:
    """Return a filter for the runs that the person may see, or None for an administrator."""
    if user.is_superuser:
        return None
    return Q(**{f"{run}__in": Run.objects.visible_to(user).order_by().values("pk")})


def _runs(user: User) -> QuerySet[Run]:
    light = ("title", "state", "problem_version__problem__title")
    return Run.objects.visible_to(user).select_related("problem_version__problem").only(*light)


def _of_runs(rows: QuerySet[Any], user: User, *columns: str) -> QuerySet[Any]:
    seen = _visible(user)
    rows = rows.filter(seen) if seen is not None else rows
    return rows.select_related("run").only("title", "run__title", *columns)


def findings_seen_by(user: User) -> QuerySet[Finding]:
    """Return the findings that a person may read: shipped ones, their teams', and those of runs that they see."""
    if user.is_superuser:
        return Finding.objects.all()
    runs = Run.objects.visible_to(user).order_by().values("pk")
    mine = Q(team__isnull=True) | Q(team__in=Membership.objects.filter(user=user).values("team"))
    return Finding.objects.filter(Q(run__isnull=True) & mine | Q(run__in=runs))


def _comments(user: User) -> QuerySet[Comment]:
    """Return published comments on runs that the person sees, and their own drafts."""
    seen = _visible(user, "thread__run")
    rows = Comment.objects.visible_to(user)
    rows = rows.filter(seen) if seen is not None else rows
    return rows.select_related("thread__run", "thread__kernel", "author").only(
        "author__username", "thread__run__title", "thread__kernel__number", "thread__first_line"
    )


def _show_problem(problem: Problem) -> tuple[str, str, str]:
    return problem.title, problem.slug, reverse("problem_page", args=[problem.slug])


def _show_run(run: Run) -> tuple[str, str, str]:
    return str(run), run.problem_version.problem.title, reverse("run_page", args=[run.pk])


def _show_kernel(kernel: Kernel) -> tuple[str, str, str]:
    return str(kernel), str(kernel.run), reverse("kernel_page", args=[kernel.run_id, kernel.number])


def _show_hypothesis(row: Hypothesis) -> tuple[str, str, str]:
    return (
        row.title,
        str(row.run),
        f"{reverse('hypotheses', args=[row.run_id])}?round={row.round}#round-{row.round}",
    )


def _show_finding(row: Finding) -> tuple[str, str, str]:
    return str(row), row.get_scope(), reverse("finding_page", args=[row.pk])


def _show_comment(comment: Comment) -> tuple[str, str, str]:
    thread = comment.thread
    who = comment.author.get_username() if comment.author else "somebody"
    if thread.kernel is None:
        return f"{who} on the run", str(thread.run), reverse("run_page", args=[thread.run_id])
    address = reverse("kernel_page", args=[thread.run_id, thread.kernel.number])
    line = f"#L{thread.first_line}" if thread.first_line else ""
    return f"{who} on kernel #{thread.kernel.number}", str(thread.run), address + line


def _joined(first: str, second: str) -> Concat:
    return Concat(first, Value("\n"), second, output_field=TextField())


SOURCES = (
    Source("problem", "Problems", Problem.objects.visible_to, PROBLEM_WORDS, _show_problem, F("title")),
    Source("run", "Runs", _runs, RUN_WORDS, _show_run, F("guidance")),
    Source(
        "kernel", "Kernels", lambda user: _of_runs(Kernel.objects.all(), user, "number"),
        KERNEL_WORDS, _show_kernel, _joined("report", "source"),
    ),
    Source(
        "hypothesis", "Hypotheses",
        lambda user: _of_runs(Hypothesis.objects.all(), user, "round"),
        HYPOTHESIS_WORDS, _show_hypothesis, _joined("description", "rubric"),
    ),
    Source(
        "finding", "Findings",
        lambda user: findings_seen_by(user).select_related("target", "problem", "run"),
        FINDING_WORDS, _show_finding, F("text"),
    ),
    Source("comment", "Comments", _comments, COMMENT_WORDS, _show_comment, F("body"), "body"),
)  # fmt: skip
