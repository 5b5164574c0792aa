"""Choose the earlier measurements that teach something about a tuning space: those of the same parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optimizer.search.earlier import EarlierTask
from optimizer.search.machinery.ahead import key_of
from optimizer.search.samplers.base import FEWEST_RELATED, RelatedTask, Trial
from optimizer.search.space import FLAGS, Space
from runners.job import Language, TunableValue, Variant


def related_tasks(tasks: Iterable[EarlierTask], space: Space, language: Language) -> list[RelatedTask]:
    """Return the tasks in which enough configurations of this space were measured, as trials."""
    found = [
        RelatedTask(task.title, tuple(_trials(task.measured, space))) for task in tasks if task.language == language
    ]
    return [task for task in found if len(task.trials) >= FEWEST_RELATED]


def words_of(tasks: Sequence[RelatedTask]) -> str:
    """Return the tasks in words, such as `214 measurements on MI210`; empty for none."""
    return ", ".join(f"{len(task.trials)} measurements {task.title}" for task in tasks)


def _trials(measured: Iterable[tuple[Variant, float]], space: Space) -> Iterable[Trial]:
    """Yield the configurations of this space, of a repeated one the newest time."""
    times = {_key(space, variant): time_us for variant, time_us in measured}
    for key, time_us in times.items():
        if key is not None:
            yield Trial(dict(zip(space.names, key, strict=True)), time_us)


def _key(space: Space, variant: Variant) -> tuple[TunableValue, ...] | None:
    same_names = set(variant.tunables) == set(space.names) - {FLAGS}
    return key_of(space, variant) if same_names else None
