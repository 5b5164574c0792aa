"""Find the team members whom a text mentions with `@name`."""

from __future__ import annotations

import re

from django.db.models import QuerySet

from optimizer.models import Team, User

# An account name after an @ that is not part of an address or path.
MENTION = re.compile(r"(?<![\w@/.])@([\w.+-]{1,150}\b)")
MOST_MENTIONS = 50


def mentioned(text: str, team: Team) -> QuerySet[User]:
    """Return the members of the team whom the text mentions, at most `MOST_MENTIONS`."""
    names = list(dict.fromkeys(MENTION.findall(text)))[:MOST_MENTIONS]
    return User.objects.filter(memberships__team=team, username__in=names, is_active=True)


def names_in(team: Team) -> frozenset[str]:
    """Return the account names that can be mentioned."""
    return frozenset(team.members.values_list("username", flat=True))
