"""Store run templates: named, filled-in forms from which a team starts runs."""

from __future__ import annotations

from django.db import models

from optimizer.models.team import Team, User
from optimizer.models.titles import TitleField


class RunTemplate(models.Model):
    """Store one template.

    `values` maps each form field to a string, as in a query string. They are validated when a run is started and not
    before, because what a template names may have been deleted by then.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="run_templates")
    name = TitleField(max_length=80)
    values = models.JSONField(default=dict, blank=True)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_template_per_name_and_team")]
        ordering = ["team", "name"]

    def __str__(self) -> str:
        return self.name
