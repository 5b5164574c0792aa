"""Apply an action to the selected runs of the table."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from optimizer.actions.run_labels import BULK, Bulk, check_tags, do_in_bulk, operable
from optimizer.models import Run, User
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views.signed_in import user_of

MOST = 200


@login_required
@require_POST
def runs_bulk(request: HttpRequest) -> HttpResponse:
    """Apply one action to the selected runs: compare, tag, untag, archive, unarchive or stop."""
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
        more = f" {left} unchanged: your role there does not allow it." if left else ""
        messages.info(request, said + more if named else "No runs selected.")
    return redirect(_back(request))


def _do(request: HttpRequest, user: User, runs: list[Run]) -> str:
    """Apply the action and describe the result. Raises Http404 for an unknown action, ValidationError for bad tags."""
    verb = request.POST.get("do", "")
    if verb not in BULK:
        raise Http404
    tags = check_tags(request.POST.get("tags", "")) if verb in ("tag", "untag") else []
    changed = do_in_bulk(user, runs, cast(Bulk, verb), tags)
    return f"{_runs(changed)} {_DONE[verb]}{' ' + ', '.join(tags) if tags else ''}."


_DONE = {"archive": "archived", "unarchive": "restored", "tag": "tagged", "untag": "untagged", "stop": "stopping"}


def _named(request: HttpRequest) -> list[int]:
    texts = dict.fromkeys(request.POST.getlist("run"))
    return [number for text in texts if (number := parse_whole_number(text)) is not None][:MOST]


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _back(request: HttpRequest) -> str:
    """Return the address of the table with its filter."""
    wanted = request.POST.get("next", "")
    return wanted if url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) else reverse("runs")
