"""List ready sets of configurations to compare: strategies against each other, and each paper's parts switched off.

A set is a list of (name, strategy, settings). Everything else, such as models and budgets, is the same for all of a
set, or a difference would have two causes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PUBLISHED: Mapping[str, Any] = {"preset": "as_published"}
NO_TUNING: Mapping[str, Any] = {"tune": {"evaluations": 0}}


@dataclass(frozen=True)
class Arm:
    """Hold one configuration of a set."""

    name: str
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigurationSet:
    """Hold a set with the question that it answers."""

    key: str
    title: str
    question: str
    arms: Sequence[Arm]


def _arms(strategy: str, *parts: tuple[str, Mapping[str, Any]]) -> list[Arm]:
    return [Arm(name, strategy, settings) for name, settings in parts]


# The parts that both papers' strategies can do without here.
_ADDITIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("tools off", {"tools": "none"}),
    ("warm start off", {"warm_start": False}),
    ("tuning off", NO_TUNING),
)

SETS: dict[str, ConfigurationSet] = {
    one.key: one
    for one in (
        ConfigurationSet(
            "strategies",
            "Strategies as published",
            "STARK claims the order STARK, Reflexion, sampling at an equal budget (arXiv 2510.16996, section 5).",
            [
                Arm("sampling", "sampling", PUBLISHED),
                Arm("reflexion", "reflexion", PUBLISHED),
                Arm("STARK as published", "stark", PUBLISHED),
                Arm("STARK with tools", "stark", {}),
            ],
        ),
        ConfigurationSet(
            "stark",
            "STARK, part by part",
            "What search, agents, windows and anchors contribute, and what tools, warm start and tuning add.",
            [
                *_arms(
                    "stark",
                    ("STARK", {}),
                    ("search off", {"search": False}),
                    ("agents off", {"agents": False}),
                    ("windows off", {"windows": False}),
                    ("anchors off", {"anchors": False}),
                    *_ADDITIONS,
                ),
                Arm("as published", "stark", PUBLISHED),
            ],
        ),
        ConfigurationSet(
            "scientist",
            "GPU Kernel Scientist, part by part",
            "What findings, digest and the choice of three contribute, and what tools, warm start and tuning add.",
            [
                *_arms(
                    "scientist",
                    ("Scientist", {}),
                    ("findings off", {"bootstrap": False, "grow_findings": False, "consolidate": False}),
                    ("digest off", {"digest": False}),
                    ("one experiment a round", {"chosen": 1}),
                    ("retries off", {"retries": 0}),
                    *_ADDITIONS,
                ),
                Arm("as published", "scientist", PUBLISHED),
            ],
        ),
        ConfigurationSet(
            "samplers",
            "Tuning, by sampler",
            "How a Gaussian process compares with random configurations. Needs no model.",
            _arms("tune", ("Gaussian process", {}), ("random", {"sampler": "random"})),
        ),
    )
}
