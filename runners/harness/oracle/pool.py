"""Keep oracles warm: one process that holds torch, and oracles by problem.

A cold command pays for importing torch once, while the candidate builds; a warm worker pays nothing.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from runners.harness.devices.capacity import standing
from runners.harness.devices.device import Device
from runners.harness.oracle.client import GpuOracleClient, OracleClient
from runners.harness.oracle.confinement import oracle_policy, shares_process
from runners.harness.oracle.zygote import Zygote
from runners.harness.processes.preloading import modules_for
from runners.harness.processes.warm_workers import WarmWorkers
from runners.job import ProblemBundle


class TrustedPool:
    """Lend oracles of one device and take them back. Threads may share a pool; a fork may not."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Each kept oracle holds its problem's weights. A fresh one takes five seconds to start and is paused for half
        # of every evaluation, so one alone was not ready for the next.
        self._standing = standing(device)
        self.warm_workers = WarmWorkers(device)
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._fresh: deque[OracleClient] = deque()
        self._oracles: OrderedDict[str, OracleClient] = OrderedDict()
        self._owner = os.getpid()
        self._reaper = ThreadPoolExecutor(1, thread_name_prefix="reaper")
        self._closing: list[Future[None]] = []
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="fresh-oracles")
        self._starting: Future[None] | None = None

    def zygote(self) -> Zygote:
        """Return the process that holds torch for the problems we ship, started on first use and again if it died."""
        with self._lock:
            if self._zygote is None or not self._zygote.alive:
                self._drop_oracles()
                self._zygote = self._new_zygote()
            return self._zygote

    def borrow(self, bundle: ProblemBundle) -> OracleClient:
        """Return an oracle of that problem for one evaluation, a warm one if there is one."""
        zygote = self.zygote() if shares_process(bundle) else None
        with self._lock:
            kept = self._oracles.pop(bundle.content_hash, None)
        if kept is not None:
            if kept.alive:
                return kept
            kept.close()
        self._keep_oracles(self._standing.oracles - 1)
        oracle = self._own_oracle() if zygote is None else self._oracle_of(zygote, is_alone=False)
        return oracle.open(bundle)

    def _own_oracle(self) -> OracleClient:
        """Return an oracle whose process has seen no problem and serves no other one."""
        fresh = self._taken_fresh() or self._new_oracle()
        if self._device.kind != "cpu":
            # On a CPU they would compete with what is measured.
            self._keep_fresh()
        return fresh

    def _new_oracle(self) -> OracleClient:
        return self._oracle_of(self._new_zygote(), is_alone=True)

    def _new_zygote(self) -> Zygote:
        return Zygote(oracle_policy(self._device), modules_for(self._device))

    def _oracle_of(self, zygote: Zygote, *, is_alone: bool) -> OracleClient:
        if self._device.kind == "cpu":
            return OracleClient(zygote, is_alone=is_alone)
        return GpuOracleClient(zygote, self._device.kind, self._device.flush_bytes, is_alone=is_alone)

    def _taken_fresh(self) -> OracleClient | None:
        """Return the fresh oracle that was started first, or None if none is alive."""
        with self._lock:
            while self._fresh:
                fresh = self._fresh.popleft()
                self.warm_workers.release(fresh)
                if fresh.alive:
                    return fresh
                fresh.close()
        return None

    def expect(self, workers: int, *, with_triton: bool, one_stream: bool) -> None:
        """Start the warm workers that are missing for an evaluation, and end those of the other kind."""
        if (end := self.warm_workers.give_up(not one_stream)) is not None:
            self.afterwards(end)
        self.warm_workers.with_triton = with_triton
        self.warm_workers.expect(workers, one_stream)

    def give_back(self, bundle: ProblemBundle, oracle: OracleClient) -> None:
        """Take back an oracle that survived its evaluation."""
        oracle.listen(None)
        oracle.rest()
        with self._lock:
            other = self._oracles.pop(bundle.content_hash, None)
            self._oracles[bundle.content_hash] = oracle
        if other:
            self.afterwards(other.close)
        self._keep_oracles(self._standing.oracles)

    def _keep_oracles(self, most: int) -> None:
        """End the oracles that were used longest ago, until there are no more than that."""
        with self._lock:
            dropped = [self._oracles.popitem(last=False)[1] for _ in range(len(self._oracles) - most)]
        for client in dropped:
            self.afterwards(client.close)

    def afterwards(self, close: Callable[[], None]) -> None:
        """End processes in the background, while no job is timed."""
        with self._lock:
            self._closing = [future for future in self._closing if not future.done()]
            self._closing.append(self._reaper.submit(self._close_undisturbing, close))

    def await_endings(self) -> float:
        """Wait until the processes of earlier evaluations have given their memory back. Return the seconds waited."""
        started = time.monotonic()
        wait(self._closing)
        return time.monotonic() - started

    def _close_undisturbing(self, close: Callable[[], None]) -> None:
        with self._device.shared():
            close()

    def _keep_fresh(self) -> None:
        """Start the oracles that the next new problems take, in the background.

        Otherwise each would wait for opening the device. They start during the first stages of
        this evaluation and are paused while a job is timed.
        """
        with self._lock:
            if self._starting is None or self._starting.done():
                self._starting = self._starter.submit(self._fill_fresh)

    def _fill_fresh(self) -> None:
        while len(self._fresh) < self._standing.fresh:
            fresh = self._new_oracle()
            with self._lock:
                self._fresh.append(fresh)
                self.warm_workers.hold(fresh)

    def close(self) -> None:
        """End all processes. The pool may be used again."""
        if os.getpid() != self._owner:
            return
        wait([*self._closing, *filter(None, [self._starting])])
        self.warm_workers.close()
        with self._lock:
            self._drop_oracles()
            for fresh in self._fresh:
                self.warm_workers.release(fresh)
                fresh.close()
            self._fresh.clear()
            if self._zygote is not None:
                self._zygote.close()
            self._zygote = None

    def _drop_oracles(self) -> None:
        for oracle in self._oracles.values():
            oracle.close()
        self._oracles.clear()


CPU = Device("cpu")
_pools: dict[tuple[int, str, str], TrustedPool] = {}


def pool(device: Device = CPU) -> TrustedPool:
    """Return this process's pool for a device. A forked child gets one of its own."""
    key = (os.getpid(), device.kind, device.index)
    if key not in _pools:
        for stale in [other for other in _pools if other[0] != key[0]]:
            del _pools[stale]
        _pools[key] = TrustedPool(device)
        atexit.register(_pools[key].close)
    return _pools[key]
