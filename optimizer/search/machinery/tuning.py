"""Tune one kernel: read its declared space, collect what was tried, and propose what to try next.

The strategy `tune` does nothing else; other strategies hand their promising kernels over to it.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from optimizer.search.base import Draft, History, KernelView
from optimizer.search.compiled import CompileAhead, Upcoming, is_compiled_ahead
from optimizer.search.flow import Flow, Waiting
from optimizer.search.machinery import ahead
from optimizer.search.machinery.ahead import Compiled
from optimizer.search.machinery.related import related_tasks, words_of
from optimizer.search.machinery.tuned_source import with_values
from optimizer.search.machinery.winners import undefeated
from optimizer.search.samplers import SAMPLERS, Trial
from optimizer.search.space import FLAGS, Config, Space
from runners.job import Source, TunableValue, Variant
from runners.tunables import TunablesError, parse

# Configurations that were fast for other kernels and are measured before the sampler chooses.
MOST_GUESSES = 3


def tune_kernel(flow: Flow, kernel: KernelView, sampler: str, evaluations: int, prefix: str, width: int) -> None:
    """Try `evaluations` configurations of a kernel, `width` at a time. Raises Waiting until they are measured.

    The kernel's own configuration was measured already and is not repeated. A kernel that declares no tunables is
    left as it is.
    """
    if size_of(kernel.source) <= 1:
        return
    search = Search(flow.history, kernel, prefix, written=True)
    room = evaluations - len(search.mine)
    if room > 0 and not flow.out_of_budget:
        slots = min(width, room + len(search.pending))
        flow.lanes(partial(flow.evaluate, draft) for draft in search.drafts(slots, sampler))
    if search.pending:
        raise Waiting(search.pending[0].key)


class Search:
    """Hold the tuning space of one kernel and its trials so far.

    The configurations are the kernels `<prefix><number>`. With `written`, each of them has its values in its text, so
    that it can be built upon, and the basis counts as a trial. Raises TunablesError and SpaceError where the kernel
    declares nothing that can be searched. With `transfer`, the sampler starts from what earlier runs measured of the
    same parameters.
    """

    def __init__(
        self, history: History, basis: KernelView, prefix: str, *, written: bool = False, transfer: bool = False
    ) -> None:
        self.history = history
        self.basis = basis
        self.prefix = prefix
        self.written = written
        self.space = space_of(basis.source)
        self.mine = [kernel for kernel in history.kernels if is_numbered(kernel.key, prefix)]
        self.pending = [kernel for kernel in self.mine if not kernel.finished]
        self.tried = [config_of(self.space, kernel.source) for kernel in self.mine]
        self.batches = [batch for batch in history.compiled if is_numbered(batch.key, f"{prefix}ahead")]
        self.compiled = Compiled.of(self.space, self.batches)
        earlier = history.earlier if transfer else ()
        self.related = related_tasks(earlier, self.space, basis.source.language)

    @property
    def is_compiling(self) -> bool:
        """Return whether a batch is being compiled ahead."""
        return any(not batch.finished for batch in self.batches)

    def compiles_ahead(self, count: int) -> bool:
        """Return whether configurations are compiled before they are measured: `count` is how many at a time.

        After a batch for which nothing was there to compile it, the search goes on without.
        """
        served = is_compiled_ahead(self.history.target, self.basis.source.language)
        return count > 0 and served and not any(batch.error for batch in self.batches)

    def batch(self, count: int, sampler: str) -> CompileAhead | None:
        """Return what to compile next, or None while enough is compiled or nothing is left to compile.

        `count` configurations are compiled for every one that is measured, and more where none of them can run.
        """
        if not self.compiles_ahead(count) or self.is_compiling or self.history.evaluations_left == 0:
            return None
        trials = self._trials()
        if len(self.compiled.builds) >= count * (len(self.mine) + 1) and self.compiled.ready(trials):
            return None
        key = f"{self.prefix}ahead{len(self.batches)}"
        rng = self._generator(key)
        configs = ahead.shortlist(sampler, self.compiled, trials, count, rng, self.related, self._guesses)
        variants = tuple(Variant(*self._values(config)) for config in configs)
        return CompileAhead(key, self.basis.key, variants) if variants else None

    def drafts(self, concurrency: int, sampler: str, compiled: int = 0) -> list[Draft]:
        """Return one draft for every free slot, as long as something is untried.

        With `compiled`, the number of configurations that are compiled ahead at a time, only those are proposed.
        """
        free = concurrency - len(self.pending)
        if self.history.evaluations_left is not None:
            free = min(free, self.history.evaluations_left)
        if free <= 0:
            return []
        propose = self._propose_compiled if self.compiles_ahead(compiled) else self._propose
        return [self._draft(len(self.mine) + i, config) for i, config in enumerate(propose(free, sampler))]

    def upcoming(self, most: int, sampler: str, compiled: int = 0) -> list[Upcoming]:
        """Return what `drafts` would propose for so many free slots, with the machine code that is known of it."""
        if self.history.evaluations_left is not None:
            most = min(most, self.history.evaluations_left)
        ahead_only = self.compiles_ahead(compiled)
        configs = (self._propose_compiled if ahead_only else self._propose)(most, sampler) if most > 0 else []
        why = f"chosen by the sampler {sampler}{' among what compiled' if ahead_only else ''}"
        if self.related and SAMPLERS[sampler].uses_related:
            why += f", which starts from {words_of(self.related)}"
        features = self.compiled.features
        return [Upcoming(self._title(one), why, features.get(self.space.key(one), {})) for one in configs]

    def _propose(self, count: int, sampler: str) -> list[Config]:
        """Return the declared default first, then what was fast elsewhere, then the sampler's suggestions.

        This is a pure function of seed and history.
        """
        guesses = [self.space.defaults(), *self._guesses]
        sampling = SAMPLERS[sampler](self.space, guesses, self.compiled.features, self.related)
        return sampling.ask(self.compiled.seen(self._trials()), count, self._next_generator())

    def _propose_compiled(self, count: int, sampler: str) -> list[Config]:
        """Return the declared default first, which needs no look, then suggestions among what compiled."""
        trials, default = self._trials(), self.space.defaults()
        if self.space.valid(default) and default not in [trial.config for trial in trials]:
            return [default]
        rng = self._next_generator()
        return ahead.propose(sampler, self.compiled, trials, count, rng, self.related, self._guesses)

    @cached_property
    def _guesses(self) -> list[Config]:
        """Return what was fast for other kernels with the same parameters, the fastest of them first."""
        own = {self.basis.key, *(kernel.key for kernel in self.mine)}
        others = [kernel for kernel in undefeated(self.history) if kernel.key not in own]
        language = self.basis.source.language
        ranked = sorted(others, key=lambda one: (one.ranking_us, one.number))
        configs = [_config_like(self.space, one.source) for one in ranked if one.source.language == language]
        known = config_of(self.space, self.basis.source)
        new = {self.space.key(one): one for one in configs if one and one != known and self.space.valid(one)}
        return list(new.values())[:MOST_GUESSES]

    def _next_generator(self) -> np.random.Generator:
        # The number of trials is part of the seed, so that a replay at any later time suggests the same
        # configurations.
        return self._generator(f"{self.prefix}{len(self.mine)}")

    def _generator(self, key: str) -> np.random.Generator:
        return np.random.default_rng(self.history.rng(key).getrandbits(64))

    def _trials(self) -> list[Trial]:
        trials = [_trial(config, kernel) for config, kernel in zip(self.tried, self.mine, strict=True)]
        return [_trial(config_of(self.space, self.basis.source), self.basis), *trials] if self.written else trials

    def _draft(self, number: int, config: Config) -> Draft:
        tunables, flags = self._values(config)
        source = Source(self.basis.source.language, self.basis.source.text, tunables, flags)
        return Draft(
            key=f"{self.prefix}{number}",
            source=with_values(source) if self.written else source,
            parent_keys=(self.basis.key,),
            author_kind="tuner",
            title=self._title(config),
        )

    def _title(self, config: Config) -> str:
        changed = self._changed(config).items()
        return ", ".join(f"{name}={value}" for name, value in changed) or "declared defaults"

    def _values(self, config: Config) -> tuple[dict[str, TunableValue], tuple[str, ...]]:
        """Return the tunables and flags of a configuration."""
        tunables = {name: value for name, value in config.items() if name != FLAGS}
        return tunables, tuple(str(config[FLAGS]).split()) if FLAGS in config else self.basis.source.flags

    def _changed(self, config: Config) -> dict[str, TunableValue]:
        """Return the values that differ from the defaults."""
        defaults = self.space.defaults()
        return {name.removeprefix("@"): value for name, value in config.items() if value != defaults[name]}


def _config_like(space: Space, source: Source) -> Config | None:
    """Return the configuration of a kernel that declares the parameters of the space; None for any other kernel."""
    try:
        declared = parse(source.text)
    except TunablesError:
        return None
    config = {**declared.defaults(), **source.tunables}
    if config.keys() != {name for name in space.names if name != FLAGS}:
        return None
    flags = source.flags or next(iter(declared.flag_sets), ())
    return config | {FLAGS: " ".join(flags)} if FLAGS in space.names else config


def _trial(config: Config, kernel: KernelView) -> Trial:
    return Trial(config, kernel.time_us if kernel.correct else None, pending=not kernel.finished)


def is_numbered(key: str, prefix: str) -> bool:
    """Return True for the prefix followed by a number and nothing else, as a tuned kernel may be tuned itself."""
    return key.startswith(prefix) and key[len(prefix) :].isdecimal()


def size_of(source: Source) -> int:
    """Count the combinations that the text declares; 0 where it declares none or cannot be parsed."""
    try:
        return parse(source.text).size
    except TunablesError:
        return 0


def space_of(source: Source) -> Space:
    """Return the space of a kernel's declarations. Raises TunablesError and SpaceError."""
    return Space.declared(parse(source.text))


def config_of(space: Space, source: Source) -> Config:
    """Return the configuration with which a kernel was built; parameters that it does not name have their default."""
    config = {**space.defaults(), **source.tunables}
    # In the space, a set of flags is one value, written with spaces. Without flags, a build takes the first set.
    return config | {FLAGS: " ".join(source.flags)} if FLAGS in space.names and source.flags else config
