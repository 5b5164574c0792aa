"""Choose the next model with an upper-confidence bandit that takes the cost of an answer into account.

UCB1 (Auer, Cesa-Bianchi, Fischer 2002) runs on discounted counts (Garivier & Moulines 2011). The decay of 0.95 per
call keeps a model that was good early from living on its past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DECAY = 0.95


@dataclass(frozen=True)
class Pull:
    """Describe one answered call. `reward` in [0, 1] is its gain; `cost_usd` is None where the price is unknown."""

    model: str
    reward: float
    cost_usd: float | None = None


@dataclass
class _Arm:
    weight: float = 0.0
    reward: float = 0.0
    cost: float = 0.0
    priced: float = 0.0

    @property
    def mean_cost(self) -> float:
        """Return the mean cost in USD per call, over the calls whose cost is known."""
        return self.cost / self.priced

    def fade(self, decay: float) -> None:
        """Discount all counts by one call."""
        self.weight, self.reward = self.weight * decay, self.reward * decay
        self.cost, self.priced = self.cost * decay, self.priced * decay

    def take(self, pull: Pull) -> None:
        """Add one call."""
        self.weight += 1
        self.reward += min(1.0, max(0.0, pull.reward))
        if pull.cost_usd is not None:
            self.cost, self.priced = self.cost + pull.cost_usd, self.priced + 1


def choose_model(
    models: Sequence[str], pulls: Sequence[Pull], exploration: float = 0.5, decay: float = DECAY
) -> str:
    """Return the model with the highest optimistic reward per relative cost.

    Models that were never asked come first, in the order given. Costs are compared over the calls whose cost is known
    (a call that failed before it was sent has none). Where a model has no such call, all costs count as equal.
    """
    arms = _arms(models, pulls, decay)
    # Without an observation the bonus would be infinite.
    untried = [model for model in models if arms[model].weight == 0]
    if untried:
        return untried[0]
    priced = all(arm.priced > 0 for arm in arms.values())
    total = sum(arm.weight for arm in arms.values())
    return max(models, key=lambda model: _score(arms, model, total, exploration, priced))


def _arms(models: Sequence[str], pulls: Sequence[Pull], decay: float) -> dict[str, _Arm]:
    arms = {model: _Arm() for model in models}
    for pull in pulls:
        # Fade every arm at each call, so that a model which is no longer asked is forgotten too and will be tried
        # again.
        for arm in arms.values():
            arm.fade(decay)
        if pull.model in arms:
            arms[pull.model].take(pull)
    return arms


def _score(arms: dict[str, _Arm], model: str, total: float, exploration: float, priced: bool) -> float:
    arm = arms[model]
    # The bonus of UCB1; the maximum keeps the logarithm positive while the discounted counts are small.
    bonus = exploration * math.sqrt(math.log(max(total, math.e)) / arm.weight)
    optimistic = arm.reward / arm.weight + bonus
    if not priced:
        return optimistic
    mean_cost = sum(other.mean_cost for other in arms.values()) / len(arms)
    relative = arm.mean_cost / mean_cost if mean_cost > 0 else 1.0
    # The floor keeps a nearly free model from winning regardless of its rewards.
    return optimistic / max(relative, 0.05)
