"""Show and change a person's own account, and the tokens of service accounts."""

from __future__ import annotations

from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_team
from optimizer.actions import account as actions
from optimizer.actions.token import do_revoke_token
from optimizer.forms.account import PasswordForm, ProfileForm
from optimizer.models import ApiToken, TeamRole, User
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views.account import towards_company
from optimizer.views.confirm import let_in_lately
from optimizer.views.refusals import attempt, filled_in
from optimizer.views.signed_in import user_of
from optimizer.views.tokens import TokenForm, make_token


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Change name and address."""
    user = user_of(request)
    form = ProfileForm(request.POST if request.method == "POST" else None, instance=User.objects.get(pk=user.pk))
    if request.method == "POST":
        saved = filled_in(form, lambda: actions.do_change_profile(user, **form.cleaned_data))
        if saved is not None:
            messages.success(request, "Saved.")
            return redirect("profile")
    return render(request, "account/profile.html", {"form": form})


@sensitive_post_parameters("old_password", "new_password1", "new_password2")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: HttpRequest) -> HttpResponseBase:
    """Change the password, which signs out every other browser. Guessing the old one is slowed down as at sign-in."""
    user = user_of(request)
    if not user.has_usable_password():
        return _first_password(request)
    form = PasswordForm(request, user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        return _change_password(request, form)
    return render(request, "account/password.html", {"form": form})


@login_required
@never_cache
@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """List where the person is signed in."""
    rows = sorted(
        UserSession.objects.purge_and_list(user_of(request)), key=lambda row: row.last_seen_at, reverse=True
    )
    own = request.session.session_key
    return render(request, "account/sessions.html", {"rows": [(row, row.session_key == own) for row in rows]})


@login_required
@require_POST
def session_end(request: HttpRequest, session_id: int) -> HttpResponse:
    """Sign out one browser."""
    row = get_object_or_404(UserSession, pk=session_id, user=user_of(request))
    attempt(request, lambda: actions.do_end_session(user_of(request), row), "That browser is signed out.")
    return redirect("sessions")


@login_required
@require_POST
def sessions_end_others(request: HttpRequest) -> HttpResponse:
    """Sign out every other browser."""
    count = actions.do_end_other_sessions(user_of(request), request.session.session_key)
    messages.success(request, f"Signed out {count} other browsers.")
    return redirect("sessions")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def service_tokens(request: HttpRequest, slug: str, user_id: int) -> HttpResponse:
    """Create and revoke the tokens of a service account, as an owner of its team."""
    team = access_team(user_of(request), slug, TeamRole.OWNER)
    account = get_object_or_404(User, pk=user_id, memberships__team=team, is_service_account=True, is_active=True)
    if (number := parse_whole_number(request.POST.get("revoke"))) is not None:
        row = get_object_or_404(ApiToken, pk=number, user=account)
        attempt(request, lambda: do_revoke_token(user_of(request), row), f"{row.name} no longer works.")
        return redirect("service_tokens", slug=slug, user_id=user_id)
    form = TokenForm(request.POST if request.method == "POST" else None)
    secret = make_token(account, form, user_of(request)) if request.method == "POST" else ""
    context = {
        "team": team,
        "owner": account,
        "rows": ApiToken.objects.usable().filter(user=account),
        "form": TokenForm() if secret else form,
        "secret": secret,
    }
    return render(request, "teams/service_tokens.html", context)


def _first_password(request: HttpRequest) -> HttpResponseBase:
    """Set a first password, after a recent company sign-in in place of the old password."""
    if not let_in_lately(request):
        return towards_company(render(request, "account/password.html", {"first": True}))
    form = SetPasswordForm(user_of(request), request.POST if request.method == "POST" else None)
    if form.is_valid():
        return _change_password(request, form)
    return render(request, "account/password.html", {"form": form, "first": True})


def _change_password(request: HttpRequest, form: SetPasswordForm[User]) -> HttpResponse:
    form.save()
    # Changing the password invalidates all sessions; this one shall stay.
    update_session_auth_hash(request, form.user)
    # allauth looks sessions up in the database, where this one still has the old password's hash.
    request.session.save()
    UserSession.objects.create_from_request(request)
    actions.do_end_other_sessions(user_of(request), request.session.session_key)
    messages.success(request, "Password changed. All other browsers were signed out.")
    return redirect("profile")
