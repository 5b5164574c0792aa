"""Tell which configurations won their tuning: those are what agents build on, and where another tuning begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from optimizer.search.base import History, KernelView, fastest


def configurations(history: History) -> dict[str, list[KernelView]]:
    """Map the key of every tuned kernel to the kernels that tuning has made of it, the dispatch by shape included."""
    found: dict[str, list[KernelView]] = defaultdict(list)
    for kernel in history.kernels:
        if kernel.author_kind == "tuner" and kernel.parent_keys:
            found[kernel.parent_keys[0]].append(kernel)
    return found


def tuned_winners(history: History) -> dict[str, KernelView]:
    """Map the key of every tuned kernel to the fastest of its configurations, where that is faster than itself."""
    tuned = configurations(history)
    winners = {base: fastest([history.kernels_by_key[base], *tried]) for base, tried in tuned.items()}
    return {base: winner for base, winner in winners.items() if winner is not None and winner.key != base}


def without_lost_trials(history: History, kernels: Sequence[KernelView]) -> list[KernelView]:
    """Return the kernels without the configurations that did not win their tuning."""
    won = {kernel.key for kernel in tuned_winners(history).values()}
    return [kernel for kernel in kernels if kernel.author_kind != "tuner" or kernel.key in won]


def undefeated(history: History) -> list[KernelView]:
    """Return the kernels whose time counts, of each that was tuned only the fastest configuration."""
    beaten = tuned_winners(history).keys()
    return [one for one in without_lost_trials(history, history.kernels) if one.counts and one.key not in beaten]
