"""Save and delete the named views of the runs table."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from optimizer.actions.saved_view import do_delete_view, do_save_view
from optimizer.models import SavedView, User
from optimizer.views.signed_in import user_of


def views_of(user: User) -> QuerySet[SavedView]:
    """Return the person's views by name."""
    return SavedView.objects.filter(user=user)


@login_required
@require_POST
def view_save(request: HttpRequest) -> HttpResponse:
    """Save the table's filter, order, grouping and columns under a name."""
    query = request.POST.get("query", "")
    try:
        query = do_save_view(user_of(request), request.POST.get("name", ""), query).query
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
    return redirect(f"{reverse('runs')}?{query}")


@login_required
@require_POST
def view_delete(request: HttpRequest, view_id: int) -> HttpResponse:
    """Delete one of the person's views."""
    do_delete_view(user_of(request), view_id)
    return redirect("runs")
