"""Save and delete named views of the runs table."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import QueryDict

from optimizer.actions.quota import lock_person
from optimizer.models import SavedView, User
from optimizer.models.saved_view import NAME_CHARS, QUERY_CHARS
from optimizer.text.storable import storable_text

MOST = 30
# What an address of the table may hold; anything else, and the page, is left out of a view.
KEPT = ("q", "state", "problem", "target", "strategy", "tag", "mine", "archived", "group", "sort", "cols")


@transaction.atomic
def do_save_view(user: User, name: str, query: str) -> SavedView:
    """Store the view, in place of one of the same name. Raises ValidationError for a bad name or too many views."""
    name = " ".join(storable_text(name).split())
    if not name or len(name) > NAME_CHARS:
        raise ValidationError(f"A name has 1 to {NAME_CHARS} characters.")
    kept = _kept(query)
    if len(kept) > QUERY_CHARS:
        raise ValidationError("These filters are too long for a view.")
    # Lock the person, so that the limit also holds for requests that come at the same time.
    lock_person(user)
    if SavedView.objects.filter(user=user).exclude(name=name).count() >= MOST:
        raise ValidationError(f"You have {MOST} views; delete one first.")
    view, _ = SavedView.objects.update_or_create(user=user, name=name, defaults={"query": kept})
    return view


def do_delete_view(user: User, view_id: int) -> None:
    """Delete the person's view; nothing happens where there is none."""
    SavedView.objects.filter(user=user, pk=view_id).delete()


def _kept(query: str) -> str:
    given = QueryDict(query[:2000])
    kept = QueryDict(mutable=True)
    for name in KEPT:
        kept.setlist(name, [value for value in given.getlist(name) if value and "\x00" not in value])
    return kept.urlencode()
