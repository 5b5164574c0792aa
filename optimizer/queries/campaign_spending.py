"""Add up what a campaign has spent, by configuration, and what its running runs may still spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, F, FloatField, Q, QuerySet, Sum
from django.db.models.functions import Cast, Coalesce, Greatest

from optimizer.models import Campaign, CampaignCell, Evaluation, EvaluationPurpose


@dataclass(frozen=True)
class Spent:
    """Hold the spending of some runs.

    `active` counts those that take a place. `ended` counts how often a run has come to an end, which one that is
    continued does several times, and `ended_s` is the device time that was used until then.
    """

    usd: float = 0.0
    tokens: float = 0.0
    device_s: float = 0.0
    ended_s: float = 0.0
    evaluations: int = 0
    active: int = 0
    cells: int = 0
    closed: int = 0
    ended: int = 0
    skipped: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def done(self) -> int:
        """Return how many cells have their outcome."""
        return self.closed + self.skipped

    def of(self, kind: str) -> float:
        """Return the spending in the unit of a limit: dollars, tokens or device minutes."""
        return self.device_s / 60 if kind == "device_minutes" else float(getattr(self, kind))


def spent_by_configuration(campaign: Campaign) -> dict[int, Spent]:
    """Return the spending of each configuration by its id, with one query. Settling is not part of it."""
    under_way = Q(run__isnull=False, is_closed=False, is_continuing=False)
    at_an_end = Q(is_closed=True) | Q(is_continuing=True)
    rows = campaign.cells.order_by().values("configuration").annotate(
        usd=Coalesce(Cast(Sum("run__spent_usd"), FloatField()), 0.0),
        tokens=Coalesce(Cast(Sum("run__spent_tokens"), FloatField()), 0.0),
        device_s=Coalesce(Sum("run__spent_device_s"), 0.0),
        ended_s=Coalesce(Sum("run__spent_device_s", filter=at_an_end), 0.0)
        + Coalesce(Sum("before_s", filter=under_way), 0.0),
        evaluations=Coalesce(Sum("run__spent_evaluations"), 0),
        active=Count("pk", filter=under_way & ~Q(run__state="paused")),
        cells=Count("pk"),
        closed=Count("pk", filter=Q(is_closed=True)),
        ended=Count("pk", filter=at_an_end) + Coalesce(Sum("continuations"), 0),
        skipped=Count("pk", filter=Q(is_skipped=True)),
    )  # fmt: skip
    return {row[0]: Spent(*row[1:]) for row in rows.values_list("configuration", *Spent.__dataclass_fields__)}


def reserved(campaign: Campaign, kind: str) -> float:
    """Return what the runs that have not ended may still spend, in the unit of the limit."""
    spent, limit = _COLUMNS[kind]
    live: QuerySet[CampaignCell] = campaign.cells.filter(run__isnull=False, is_closed=False, is_continuing=False)
    left = Greatest(Cast(F(limit), FloatField()) - spent, 0.0)
    found = live.filter(**{f"{limit}__isnull": False}).aggregate(left=Sum(left, output_field=FloatField()))
    return float(found["left"] or 0.0)


_COLUMNS = {
    "usd": (Cast(F("run__spent_usd"), FloatField()), "run__budget_usd"),
    "tokens": (Cast(F("run__spent_tokens"), FloatField()), "run__budget_tokens"),
    "device_minutes": (F("run__spent_device_s") / 60.0, "run__budget_device_minutes"),
}


def settling_device_s(campaign: Campaign) -> float:
    """Return the device time of the settling in seconds, with timings that were repeated."""
    return float(settling_evaluations(campaign).aggregate(all=Sum("device_s"))["all"] or 0.0)


def settling_evaluations(campaign: Campaign) -> QuerySet[Evaluation]:
    """Return all evaluations that were queued for the settling, including those that are repeated."""
    return Evaluation.objects.filter(
        kernel__run__campaign_cell__campaign=campaign, purpose=EvaluationPurpose.SETTLING
    )


def total(parts: Mapping[int, Spent]) -> Spent:
    """Return the spending of all configurations together."""
    whole = Spent()
    for one in parts.values():
        whole = whole.plus(one)
    return whole
