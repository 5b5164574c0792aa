"""Store the model servers of each team with their encrypted keys, and the recordings of earlier runs."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Q

from optimizer.models.choices import TeamRole
from optimizer.models.team import Team, User
from optimizer.models.titles import TitleField
from optimizer.secrets import keys


class ProviderKind(models.TextChoices):
    """List how a provider answers. `inbox` and `replay` exist in every team under these names and need no row."""

    OPENAI_COMPATIBLE = "openai_compatible", "OpenAI-compatible server"
    INBOX = "inbox", "People and outside agents"
    REPLAY = "replay", "Recorded answers"


# Providers that exist in every team without a row.
BUILT_IN = frozenset({ProviderKind.INBOX.value, ProviderKind.REPLAY.value})


class ProviderApi(models.TextChoices):
    """List the two OpenAI APIs that a server may speak."""

    CHAT = "chat", "Chat Completions"
    RESPONSES = "responses", "Responses"


class ProviderQuerySet(models.QuerySet["Provider"]):
    """Add the filters of the provider table."""

    def usable_by(self, user: User) -> Self:
        """Return the providers of the teams in which the person may start runs."""
        if user.is_superuser:
            return self
        allowed = [role for role in TeamRole if role.rank >= TeamRole.OPERATOR.rank]
        return self.filter(team__memberships__user=user, team__memberships__role__in=allowed).distinct()

    def enabled(self) -> Self:
        """Return the providers that are switched on."""
        return self.filter(is_enabled=True)


class Provider(models.Model):
    """Store a model server of one team.

    The key is write-only for people: `key_encrypted` can be decrypted only with secrets that are kept outside the
    database. `prices` are the team's own, in USD per million tokens, by model: {"input": …, "cached": …, "output":
    …}. `without` lists, by model, optional parameters that the server has refused. Only an administrator may set
    `allow_private`.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="providers")
    name = models.SlugField(max_length=60)
    kind = models.CharField(max_length=20, choices=ProviderKind.choices, default=ProviderKind.OPENAI_COMPATIBLE)
    base_url = models.CharField(max_length=400, blank=True)
    key_encrypted = models.TextField(blank=True, editable=False)
    default_model = models.CharField(max_length=120, blank=True)
    api = models.CharField(max_length=10, choices=ProviderApi.choices, default=ProviderApi.CHAT)
    concurrency = models.PositiveSmallIntegerField(default=4)
    timeout_s = models.FloatField(default=900)
    silence_s = models.FloatField(default=300)
    allow_private = models.BooleanField(default=False)
    prices = models.JSONField(default=dict, blank=True)
    without = models.JSONField(default=dict, blank=True, editable=False)
    is_enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = ProviderQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="one_provider_per_name_and_team"),
            models.CheckConstraint(condition=Q(concurrency__gte=1), name="provider_asks_at_least_one"),
            models.CheckConstraint(condition=Q(timeout_s__gt=0, silence_s__gt=0), name="provider_waits"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def has_key(self) -> bool:
        """Return whether a key is stored. Pages learn no more than this."""
        return bool(self.key_encrypted)

    def set_key(self, key: str) -> None:
        """Encrypt and set the key; an empty text removes it. The caller saves."""
        self.key_encrypted = keys.encrypt(key.strip())

    def read_key(self) -> str:
        """Return the decrypted key for use in a request. Raises keys.UnreadableKeyError."""
        return keys.decrypt(self.key_encrypted)

    def refuses(self, model: str) -> frozenset[str]:
        """Return the optional parameters that the server is known to refuse for a model."""
        return frozenset(self.without.get(model, []))

    def learn(self, model: str, dropped: tuple[str, ...]) -> None:
        """Remember the parameters that the server refused, so that the next request omits them."""
        known: dict[str, Any] = dict(self.without)
        known[model] = sorted(set(known.get(model, [])) | set(dropped))
        self.without = known
        self.save(update_fields=["without"])


class Record(models.Model):
    """Store a recorded run from which the provider `replay` answers (see `optimizer.calls.record`). Rows are never
    edited.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="records")
    name = models.SlugField(max_length=80)
    title = TitleField(max_length=200, blank=True)
    content = models.JSONField()
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_record_per_name_and_team")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.title or self.name
