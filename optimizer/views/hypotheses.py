"""Show the hypothesis board: what was expected of each idea, and what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count, Max, Min, QuerySet
from django.db.models.functions import Greatest, Least
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts.hypotheses import calibration, predictions
from optimizer.models import Hypothesis, HypothesisKind, Run
from optimizer.text.whole_numbers import COUNT_DIGITS, parse_whole_number
from optimizer.views.signed_in import user_of

CHARTS = {"ranges": predictions, "calibration": calibration}
BAR_WIDTH, BAR_MARGIN = 160, 6
PER_PAGE = 60


class Figures(NamedTuple):
    """Hold the hypotheses of a round: how many, how many measured, and the bounds of what was predicted and measured.

    Bounds are gains in per cent, None where nothing is known.
    """

    round: int
    hypotheses: int
    measured: int
    least: float | None
    most: float | None


@dataclass(frozen=True)
class RangeBar:
    """Hold a predicted range as a bar at `left`, `span` wide (0: none), and the measured gain as a point.

    All values are in units of a drawing that is `width` wide.
    """

    width: int
    zero: float
    left: float
    span: float
    measured: float | None


@dataclass(frozen=True)
class BoardRow:
    """Hold a hypothesis with its bar."""

    hypothesis: Hypothesis
    bar: RangeBar | None


@dataclass(frozen=True)
class BoardRound:
    """Hold a round: what was tried or proposed in it, and what was folded because nobody built it."""

    number: int
    tried: list[BoardRow]
    folded: list[BoardRow]

    @property
    def measured(self) -> int:
        """Return how many of the round's hypotheses were measured."""
        return sum(row.hypothesis.measured_gain is not None for row in self.tried)


@login_required
@require_safe
def hypotheses(request: HttpRequest, run_id: int) -> HttpResponse:
    """List the hypotheses of a run by round, the newest first; those of a long run on several pages."""
    run = access_run(user_of(request), run_id, "view")
    # Figures of all, so that every page has the same scale; the texts of one page alone.
    figures = figures_of(run)
    pages = rounds_by_page({row.round: row.hypotheses for row in figures})
    page = Paginator(pages, 1).get_page(_wanted_page(request, pages))
    shown = page.object_list[0] if page.object_list else []
    scale = scale_of([bound for row in figures for bound in (row.least, row.most)])
    rounds: dict[int, list[BoardRow]] = defaultdict(list)
    for row in _of(run).filter(round__in=shown):
        rounds[row.round].append(BoardRow(row, range_bar(row, scale)))
    context = {
        "run": run,
        "page": page,
        "rounds": [_round(number, rounds[number]) for number in shown],
        "calibrations": Hypothesis.objects.filter(run=run).calibrations(),
        "measured": sum(row.measured for row in figures),
    }
    return render(request, "runs/hypotheses.html", context)


def figures_of(run: Run) -> list[Figures]:
    """Return the figures of all rounds, with one query."""
    gains = ("predicted_min", "predicted_max", "measured_gain")
    figures = {
        "hypotheses": Count("pk"),
        "measured": Count("measured_gain"),
        # PostgreSQL's LEAST and GREATEST ignore what is null.
        "least": Least(*map(Min, gains)),
        "most": Greatest(*map(Max, gains)),
    }
    rows = Hypothesis.objects.filter(run=run).order_by().values("round").annotate(**figures)
    return [Figures(*row) for row in rows.values_list(*Figures._fields)]


def rounds_by_page(sizes: Mapping[int, int]) -> list[list[int]]:
    """Return the rounds of each page, the newest first: as many whole rounds as have about `PER_PAGE` hypotheses."""
    pages: list[list[int]] = []
    room = 0
    for number in sorted(sizes, reverse=True):
        if room <= 0:
            pages.append([])
            room = PER_PAGE
        pages[-1].append(number)
        room -= sizes[number]
    return pages


def _wanted_page(request: HttpRequest, pages: Sequence[Sequence[int]]) -> str | int:
    """Return the number of the page in the address, or of the one that holds `?round=`."""
    number = parse_whole_number(request.GET.get("round"), COUNT_DIGITS)
    holding = (n for n, rounds in enumerate(pages, 1) if number in rounds)
    return next(holding, request.GET.get("page", 1))


@login_required
@require_safe
def hypotheses_chart(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return predicted against measured gains as plotly JSON: `?axis=ranges` by hypothesis, `calibration` by model."""
    run = access_run(user_of(request), run_id, "view")
    draw = CHARTS.get(request.GET.get("axis", "ranges"))
    if draw is None:
        raise Http404
    return HttpResponse(draw(list(_of(run))).to_json(), content_type="application/json")


def _round(number: int, rows: Sequence[BoardRow]) -> BoardRound:
    """Return the round with measured hypotheses first, best gain first, then chosen ones, then the rest."""
    shown = sorted(rows, key=lambda row: _rank(row.hypothesis))
    # Avenues are ideas from which experiments are made: many, long, and never built themselves.
    return BoardRound(
        number,
        [row for row in shown if _is_tried(row.hypothesis)],
        [row for row in shown if not _is_tried(row.hypothesis)],
    )


def _rank(row: Hypothesis) -> tuple[bool, float, bool, int]:
    gain = row.measured_gain
    return gain is None, -(gain or 0.0), not row.chosen, row.pk


def _is_tried(row: Hypothesis) -> bool:
    # Instructions, repairs and tunings are carried out as they are written.
    is_proposal = row.kind in (HypothesisKind.AVENUE, HypothesisKind.EXPERIMENT)
    return row.chosen or row.measured_gain is not None or not is_proposal


def scale_of(gains: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and largest of the gains that are known, in per cent, including zero."""
    known = [gain for gain in gains if gain is not None]
    return min([0.0, *known]), max([0.0, *known])


def range_bar(row: Hypothesis, scale: tuple[float, float]) -> RangeBar | None:
    """Return the row's bar on that scale, or None without prediction and measurement."""
    low, high = scale
    predicted = row.predicted_min is not None and row.predicted_max is not None
    if high <= low or not (predicted or row.measured_gain is not None):
        return None

    def place(gain: float) -> float:
        return round(BAR_MARGIN + (gain - low) / (high - low) * (BAR_WIDTH - 2 * BAR_MARGIN), 1)

    left = place(row.predicted_min or 0.0) if predicted else 0.0
    right = place(row.predicted_max or 0.0) if predicted else 0.0
    measured = None if row.measured_gain is None else place(row.measured_gain)
    return RangeBar(BAR_WIDTH, place(0.0), left, max(1.0, right - left) if predicted else 0.0, measured)


def _of(run: Run) -> QuerySet[Hypothesis]:
    rows = Hypothesis.objects.filter(run=run).select_related("basis", "call").prefetch_related("kernels")
    heavy = ("basis__source", "basis__report", "basis__meta", "call__messages", "call__answer_text", "call__answer")
    return rows.defer(*heavy).order_by("round", "pk")
