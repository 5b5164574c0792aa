"""Show targets: what the hardware can do, from the data sheet and as measured."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.models import Run, Runner, Target
from optimizer.views.signed_in import user_of
from runners.targets import TARGETS


@login_required
@require_safe
def targets(request: HttpRequest) -> HttpResponse:
    """List all targets with their runners."""
    listed = Target.objects.annotate(runner_count=Count("runners")).order_by("title")
    rows = [(target, TARGETS.get(target.key)) for target in listed]
    return render(request, "targets/list.html", {"rows": rows})


@login_required
@require_safe
def target_page(request: HttpRequest, key: str) -> HttpResponse:
    """Show one target: facts with their sources, runners, latest runs."""
    target = get_object_or_404(Target, key=key)
    visible = Run.objects.visible_to(user_of(request)).order_by().values("pk")
    runs = Run.objects.for_dashboard().filter(pk__in=visible, target=target).order_by("-created_at")
    context = {
        "target": target,
        "facts": TARGETS.get(target.key),
        "runners": Runner.objects.filter(target=target).order_by("name"),
        "runs": runs.defer("problem_version__bundle", "best_kernel__source")[:10],
    }
    return render(request, "targets/page.html", context)
