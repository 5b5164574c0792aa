"""Load the hardware overviews that ship with the product into the database, where people can edit them."""

from __future__ import annotations

from django.db import transaction

from optimizer.knowledge import Page, pages
from optimizer.knowledge.library import OVERVIEW
from optimizer.models import Finding, Target


def do_sync_notes() -> list[Finding]:
    """Store every shipped overview for every matching target, once per text. Call after `do_sync_targets`.

    A person's edit is kept: only the newest shipped text is superseded by a newer shipped one.
    """
    overviews = [one for one in pages() if one.topic == OVERVIEW]
    return [_sync(one, target) for one in overviews for target in _targets(one)]


def _targets(overview: Page) -> list[Target]:
    return [target for target in Target.objects.order_by("key") if overview.holds_for(target.key)]


@transaction.atomic
def _sync(overview: Page, target: Target) -> Finding:
    # Several processes start at once after an upgrade; the lock keeps them from storing the note twice.
    key = f"notes.{overview.name.partition('/')[0]}"
    shipped = Finding.objects.select_for_update().filter(key=key, target=target, origin="shipped")
    newest = shipped.order_by("pk").last()
    if newest is not None and newest.text == overview.text:
        return newest
    finding = Finding.objects.create(
        key=key, target=target, kind="hardware", title=overview.title, text=overview.text, origin="shipped",
        source="; ".join(overview.sources)[:400],
    )  # fmt: skip
    # A note that a person has edited is superseded already and keeps its edit.
    if newest is not None and newest.superseded_by_id is None:
        Finding.objects.filter(pk=newest.pk).update(superseded_by=finding)
    return finding
