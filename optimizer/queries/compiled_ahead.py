"""Count what was compiled ahead for a run, and name what the compiler ruled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from optimizer.models import AheadBatch, Run
from optimizer.search.compiled import CompiledBatch
from runners.job import AheadBuild, TunableValue, Variant
from runners.wire import from_plain

# Configurations that pages and the API name.
MOST_NAMED = 50
# The error of a batch that nobody waits for any more.
CANCELLED = "cancelled"


@dataclass(frozen=True)
class RuledOut:
    """Hold a configuration that cannot run, with the compiler's reason."""

    values: dict[str, TunableValue]
    flags: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class AheadSummary:
    """Hold what was compiled ahead for a run.

    `same_binary` counts the configurations whose machine code an earlier one has too. `seconds` is the compilers' time,
    without builds from the cache. `error` says why nothing more is compiled ahead.
    """

    compiled: int
    ruled_out: Sequence[RuledOut]
    same_binary: int
    with_features: int
    seconds: float
    is_compiling: bool
    error: str

    @property
    def text(self) -> str:
        """Return the counts in words, such as `24 compiled ahead, 3 ruled out by the compiler`."""
        refused = len(self.ruled_out)
        counts = f"{self.compiled} compiled ahead, {refused or 'none'} ruled out by the compiler"
        return counts if self.compiled or not self.error else f"Nothing compiled ahead: {self.error}"


def compiled_of(run: Run) -> tuple[CompiledBatch, ...]:
    """Return the run's batches as a strategy sees them, oldest first.

    A finished batch never changes, and every decision asks for all of them, so each is read once per process.
    """
    rows = run.ahead_batches.order_by("pk").values_list("pk", "finished_at")
    return tuple(_finished(pk) if finished_at else _view(pk) for pk, finished_at in rows)


def summary_of(run: Run) -> AheadSummary | None:
    """Return what was compiled ahead for the run, or None where nothing was asked for."""
    batches = compiled_of(run)
    return summarised(batches) if batches else None


def summarised(batches: Sequence[CompiledBatch]) -> AheadSummary:
    """Return what the batches say together."""
    pairs = [pair for batch in batches for pair in zip(batch.variants, batch.builds, strict=False)]
    builds = [build for _, build in pairs]
    digests = Counter(build.artefact_hash for build in builds if build.artefact_hash)
    return AheadSummary(
        compiled=len(builds),
        ruled_out=[_ruled_out(*pair) for pair in pairs if pair[1].refused],
        same_binary=sum(count - 1 for count in digests.values()),
        with_features=sum(bool(build.figures) for build in builds),
        seconds=sum(build.seconds for build in builds if not build.cached),
        is_compiling=any(not batch.finished for batch in batches),
        error=next((batch.error for batch in batches if batch.error), ""),
    )


def _ruled_out(variant: Variant, build: AheadBuild) -> RuledOut:
    return RuledOut(dict(variant.tunables), variant.flags, build.refused)


@lru_cache(maxsize=1024)
def _finished(batch_id: int) -> CompiledBatch:
    return _view(batch_id)


def _view(batch_id: int) -> CompiledBatch:
    batch = AheadBatch.objects.get(pk=batch_id)
    return CompiledBatch(
        key=batch.key,
        variants=tuple(from_plain(Variant, one) for one in batch.variants),
        finished=batch.finished_at is not None,
        # The run may go on after a batch was cancelled, and compile ahead again.
        error="" if batch.error == CANCELLED else batch.error,
        builds=tuple(from_plain(AheadBuild, one) for one in batch.builds),
    )
