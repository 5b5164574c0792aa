"""Accept an invitation with an existing or a new account."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from optimizer.actions import team as actions
from optimizer.forms.team import JoinForm
from optimizer.models import Invitation, User
from optimizer.views.attempts import caller_of, give_back, take_attempt
from optimizer.views.refusals import attempt, filled_in

# Tokens have 256 bits; the limit keeps a scan from loading the database.
ACTION, MOST_ATTEMPTS, WINDOW_S = "invitation", 5, 900


@sensitive_post_parameters("password1", "password2")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Show who invites into which team; a button or form accepts.

    A link that does not work says so, and reveals nothing of what it was.
    """
    caller = caller_of(request)
    # Counted before the look-up, since many requests at once would all find the limit not yet reached.
    allowed = take_attempt(ACTION, caller, MOST_ATTEMPTS, WINDOW_S)
    invitation = Invitation.find(token) if allowed else None
    if invitation is None:
        return render(request, "teams/join_closed.html", status=404)
    give_back(ACTION, caller)
    if isinstance(request.user, User):
        return _join_as(request, request.user, invitation)
    return _join_anew(request, invitation)


def _join_as(request: HttpRequest, user: User, invitation: Invitation) -> HttpResponse:
    if request.method != "POST":
        return render(request, "teams/join.html", {"invitation": invitation})
    said = f"Welcome to {invitation.team}."
    if not attempt(request, lambda: actions.do_accept_invitation(user, invitation), said):
        return redirect("runs")
    return redirect("team_page", slug=invitation.team.slug)


def _join_anew(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    form = JoinForm(request.POST if request.method == "POST" else None)
    user = None
    if request.method == "POST":
        user = filled_in(form, lambda: actions.do_register(invitation, **form.entered))
    if user is None:
        return render(request, "teams/join.html", {"invitation": invitation, "form": form})
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    messages.success(request, f"Welcome to {invitation.team}.")
    return redirect("team_page", slug=invitation.team.slug)
