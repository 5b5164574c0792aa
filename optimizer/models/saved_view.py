"""Store the named views of the runs table that people keep for themselves."""

from __future__ import annotations

from django.db import models

from optimizer.models.team import User

NAME_CHARS, QUERY_CHARS = 60, 1000


class SavedView(models.Model):
    """Store one view: filter, order, grouping and columns, as the query string of the table's address."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=NAME_CHARS)
    query = models.CharField(max_length=QUERY_CHARS, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_view_per_name_and_user")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
