"""What is done with the ticked runs of the table."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from optimizer.actions.run import do_stop_run
from optimizer.actions.run_labels import check_tags, do_archive_runs, do_tag_runs, operable
from optimizer.models import Run, User
from optimizer.models.run import RunTransitionError
from optimizer.views.signed_in import user_of

MOST = 200


@login_required
@require_POST
def runs_bulk(request: HttpRequest) -> HttpResponse:
    """Compare, tag, untag, archive, take out of the archive or stop the ticked runs."""
    user = user_of(request)
    named = _named(request)
    if request.POST.get("do") == "compare":
        return redirect(f"{reverse('compare')}?{urlencode([('run', number) for number in named])}")
    seen = list(Run.objects.visible_to(user).select_related("team").filter(pk__in=named))
    runs = operable(user, seen)
    try:
        said = _do(request, user, runs)
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
    else:
        left = len(seen) - len(runs)
        more = f" {left} left alone: your role there does not allow it." if left else ""
        messages.info(request, said + more if named else "No run was ticked.")
    return redirect(_back(request))


def _do(request: HttpRequest, user: User, runs: list[Run]) -> str:
    """Carry it out; what came of it in words. Raises Http404 for an unknown verb, ValidationError for bad tags."""
    match request.POST.get("do"):
        case "archive":
            return f"{_runs(do_archive_runs(runs, archived=True))} put into the archive."
        case "unarchive":
            return f"{_runs(do_archive_runs(runs, archived=False))} taken out of the archive."
        case "tag" | "untag" as verb:
            tags = check_tags(request.POST.get("tags", ""))
            if not tags:
                raise ValidationError("Name a tag first.")
            changed = do_tag_runs(runs, tags, remove=verb == "untag")
            return f"{_runs(changed)} {'lost' if verb == 'untag' else 'got'} {', '.join(tags)}."
        case "stop":
            return f"{_runs(_stop(user, runs))} told to stop."
    raise Http404


def _stop(user: User, runs: list[Run]) -> int:
    """Stop those that still go on; how many those were."""
    stopped = 0
    for run in runs:
        try:
            do_stop_run(user, run)
            stopped += 1
        except RunTransitionError:  # it has ended, or another tab was faster
            continue
    return stopped


def _named(request: HttpRequest) -> list[int]:
    texts = request.POST.getlist("run")
    return [int(text) for text in dict.fromkeys(texts) if text.isascii() and text.isdigit() and len(text) < 19][
        :MOST
    ]


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _back(request: HttpRequest) -> str:
    """The table as it was, filter and all."""
    wanted = request.POST.get("next", "")
    return wanted if url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) else reverse("runs")
