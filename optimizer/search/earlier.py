"""Describe measurements of the same problem on another target, or of other cases: what a search may start from."""

from __future__ import annotations

from dataclasses import dataclass

from runners.job import Language, Variant


@dataclass(frozen=True)
class EarlierTask:
    """Hold the configurations that earlier runs measured on one target and version of the problem, oldest first.

    `title` says where, such as `on MI210`. Times in µs belong to that target and those cases.
    """

    title: str
    language: Language
    measured: tuple[tuple[Variant, float], ...]
