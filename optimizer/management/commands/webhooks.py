"""`manage.py webhooks list|add|remove|deliveries`: manage the webhooks of a team."""

from __future__ import annotations

from typing import Any

from optimizer.access import access_team
from optimizer.actions.webhook import do_delete_webhook, do_make_webhook, owned_webhook
from optimizer.management.words import Words, WordsCommand
from optimizer.models import TeamRole, Webhook, WebhookEvent


class Command(WordsCommand):
    """Act for a person, by default the first administrator. The signing secret is printed once."""

    help = "List, add and remove webhooks, and list their deliveries."

    def add_words(self, words: Words) -> None:
        """Declare list | add URL --team T [--event E …] | remove ID | deliveries ID."""
        words.add_parser("list", help="webhooks of all teams that the person owns")
        adding = words.add_parser("add", help="create a webhook and print its secret")
        adding.add_argument("url")
        adding.add_argument("--team", required=True, help="slug of the team")
        adding.add_argument("--event", action="append", choices=WebhookEvent.values, help="default: all events")
        adding.add_argument("--allow-private", action="store_true", help="allow addresses in your own network")
        words.add_parser("remove", help="delete a webhook").add_argument("id", type=int)
        telling = words.add_parser("deliveries", help="newest deliveries")
        telling.add_argument("id", type=int)
        telling.add_argument("--count", type=int, default=20)

    def _list(self, options: dict[str, Any]) -> None:
        for row in Webhook.objects.select_related("team"):
            if self.user.role_in(row.team) == TeamRole.OWNER:
                self.stdout.write(f"{row.pk}\t{row.team.slug}\t{row.url}\t{', '.join(row.events)}")

    def _add(self, options: dict[str, Any]) -> None:
        team = access_team(self.user, options["team"], TeamRole.OWNER)
        events = options["event"] or list(WebhookEvent.values)
        row, secret = do_make_webhook(
            self.user, team, options["url"], events, allow_private=options["allow_private"]
        )
        self.stderr.write(f"webhook {row.pk}; its secret, shown only now:")
        self.stdout.write(secret)

    def _remove(self, options: dict[str, Any]) -> None:
        row = owned_webhook(self.user, options["id"])
        do_delete_webhook(self.user, row)
        self.stdout.write(f"{row} is deleted")

    def _deliveries(self, options: dict[str, Any]) -> None:
        rows = owned_webhook(self.user, options["id"]).deliveries.order_by("-pk")
        for row in rows[: max(1, options["count"])]:
            said = row.last_status or row.last_error or "–"
            self.stdout.write(f"{row.pk}\trun {row.run_id}\t{row.event}\t{row.state}\t{row.attempts} tries\t{said}")
