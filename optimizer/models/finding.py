"""Store the documents that runs write and people edit: findings, digests, hardware notes, meta notes."""

from __future__ import annotations

import re

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from optimizer.models.problem import Problem
from optimizer.models.run import Run
from optimizer.models.search_text import FINDING_WORDS
from optimizer.models.target import Target
from optimizer.models.team import Team, User
from optimizer.models.titles import TitleField


class Finding(models.Model):
    """Store one piece of knowledge.

    Rows are never edited: an edit is a new row that supersedes the old one. A finding applies where all of its set
    scopes (target, problem, run) apply. `origin` is `shipped`, `agent`, `person` or `digest`; `source` names the
    document.
    """

    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="findings")
    target = models.ForeignKey(Target, null=True, blank=True, on_delete=models.CASCADE, related_name="findings")
    problem = models.ForeignKey(Problem, null=True, blank=True, on_delete=models.CASCADE, related_name="findings")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.CASCADE, related_name="findings")
    key = models.CharField(max_length=120, blank=True)
    kind = models.CharField(max_length=20, default="finding")
    title = TitleField(max_length=200, blank=True)
    text = models.TextField()
    origin = models.CharField(max_length=20, default="agent")
    source = models.CharField(max_length=400, blank=True)
    call = models.ForeignKey("LlmCall", null=True, blank=True, on_delete=models.SET_NULL, related_name="findings")
    author = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    # An edit supersedes one row, the librarian's document many.
    superseded_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="supersedes"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "key"], condition=~Q(key=""), name="one_finding_per_key", nulls_distinct=True
            )
        ]
        indexes = [GinIndex(FINDING_WORDS, name="finding_words")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.get_title(60)

    def get_title(self, most: int = 120) -> str:
        """Return the title, or the beginning of the text, without the marks of a Markdown heading."""
        return re.sub(r"^#{1,6}\s+", "", (self.title or self.text).lstrip())[:most]

    def get_scope(self) -> str:
        """Return in words where the finding applies, such as "MI300X, Softmax"."""
        scopes = [str(one) for one in (self.target, self.problem, self.run) if one is not None]
        return ", ".join(scopes) or "everywhere"

    @property
    def is_current(self) -> bool:
        """Return True while no other row supersedes this one. Prompts contain current findings only."""
        return self.superseded_by_id is None
