"""Render a run as one HTML file that needs no other file: styles and charts are embedded, there are no scripts."""

from __future__ import annotations

from django.template.loader import render_to_string

from optimizer.queries.judged import as_judged
from optimizer.reports import svg
from optimizer.reports.facts import Facts


def html_report(facts: Facts) -> str:
    """Return the whole document. The template escapes everything from outside."""
    charts = {
        "curve": svg.best_so_far(facts.points, facts.run.baseline.replace("_", " ")),
        "cases": svg.cases(as_judged(facts.result) if facts.result else []),
        "hypotheses": svg.hypotheses(facts.hypotheses),
    }
    return render_to_string("reports/run.html", {"facts": facts, "run": facts.run, "charts": charts})
