"""Show the family tree of a run as an interactive drawing and as a table."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.queries.lineage import Tree, tree_of
from optimizer.views.signed_in import user_of

ROWS = 100
TONES = ("good", "muted", "warn", "bad")


@login_required
@require_safe
def lineage(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the page; the drawing fetches its data."""
    run = access_run(user_of(request), run_id, "view")
    tree = tree_of(run)
    page = Paginator(tree.nodes, ROWS).get_page(request.GET.get("page"))
    context = {
        "run": run,
        "tree": tree,
        "page": page,
        "path": [node for node in tree.nodes if node.on_best_path],
        "winners": [node for node in tree.nodes if node.wins],
        "outcomes": _outcomes(tree),
    }
    return render(request, "runs/lineage.html", context)


@login_required
@require_safe
def lineage_data(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the tree in columns: one list per property, all of the same length."""
    return JsonResponse(_columns(tree_of(access_run(user_of(request), run_id, "view"))))


def _columns(tree: Tree) -> dict[str, Any]:
    nodes = tree.nodes
    return {
        "best": tree.best,
        "number": [node.number for node in nodes],
        "parents": [node.parents for node in nodes],
        "title": [node.title[:160] for node in nodes],
        "outcome": [node.outcome for node in nodes],
        "tone": [node.tone for node in nodes],
        "speedup": [node.speedup and round(node.speedup, 3) for node in nodes],
        "gain": [node.gain and round(node.gain, 3) for node in nodes],
        "wins": [node.wins for node in nodes],
        "path": [int(node.on_best_path) for node in nodes],
        "x": [node.x for node in nodes],
        "y": [round(node.y, 2) for node in nodes],
    }


def _outcomes(tree: Tree) -> list[tuple[str, str, int]]:
    counts: dict[tuple[str, str], int] = {}
    for node in tree.nodes:
        counts[(node.tone, node.outcome)] = counts.get((node.tone, node.outcome), 0) + 1
    return [(outcome, tone, n) for (tone, outcome), n in sorted(counts.items(), key=lambda item: -item[1])]
