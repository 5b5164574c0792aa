"""Trusted children on a GPU that time a reference: fresh ones started ahead, and those of earlier evaluations of the
same reference, which have given all their memory back, so that placement is drawn anew, and keep what they compiled.
"""

from __future__ import annotations

import os
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runners.harness.ahead import FAILURES, Ahead, warm_up
from runners.harness.devices import Device
from runners.harness.errors import Cancelled
from runners.harness.participant import baseline_child
from runners.harness.peer import Peer
from runners.harness.zygote import Zygote
from runners.job import Baseline, ProblemBundle

MOST_KEPT = 8
MOST_USES = 12
RELEASE_S = 10.0


@dataclass
class Lent:
    """A child on loan. `give_back` takes it for later, or ends it where it is worn out or does not answer."""

    owner: Baselines
    key: str
    peer: Peer
    uses: int = 0

    def give_back(self) -> None:
        """Back to where it came from."""
        self.owner.take_back(self)


class Baselines:
    """The children of one device. Safe to share between threads."""

    def __init__(self, device: Device, zygote: Callable[[], Zygote]) -> None:
        self._device, self._zygote = device, zygote
        self._lock = threading.Lock()
        self._kept: deque[Lent] = deque()
        self._blank = Ahead[Peer]("baselines", self._start, lambda peer: peer.alive, Peer.close)

    def expect(self, bundle: ProblemBundle, baseline: Baseline, needed: int) -> None:
        """An evaluation that needs so many begins: start what is not there."""
        key = key_of(bundle, baseline)
        with self._lock:
            ready = sum(lent.key == key for lent in self._kept)
        if ready < needed:
            self._blank.expect(needed - ready)

    def take(self, bundle: ProblemBundle, baseline: Baseline) -> Lent | None:
        """One that has timed this reference before, else a fresh one; None where there is none."""
        key = key_of(bundle, baseline)
        with self._lock:
            fitting = [lent for lent in self._kept if lent.key == key and lent.peer.alive]
            if fitting:
                lent = random.choice(fitting)  # noqa: S311 - which of them measures is no secret
                self._kept.remove(lent)
                return lent
        peer = self._blank.take()
        return None if peer is None else Lent(self, key, peer)

    def take_back(self, lent: Lent) -> None:
        """Keep it if it gave its memory back; else end it."""
        lent.uses += 1
        try:
            lent.peer.cancel = None
            lent.peer.ask({"op": "release"}, RELEASE_S)
        except (*FAILURES, Cancelled):
            lent.peer.close()
            return
        with self._lock:
            self._kept.append(lent)
            worn = [lent] if lent.uses >= MOST_USES else []
            worn += [self._kept[0]] if len(self._kept) > MOST_KEPT and not worn else []
            for old in worn:
                self._kept.remove(old)
                old.peer.close()

    def close(self) -> None:
        """End them all."""
        self._blank.close()
        with self._lock:
            while self._kept:
                self._kept.pop().peer.close()

    def _start(self, wanted: threading.Event) -> Peer:
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            peer = baseline_child(self._zygote(), nothing)
        finally:
            os.close(nothing)
        try:
            warm_up(peer, self._device, wanted)
        except BaseException:
            peer.close()
            raise
        return peer


def key_of(bundle: ProblemBundle, baseline: Baseline) -> str:
    """What a child that has timed it once can time again."""
    return f"{bundle.content_hash} {baseline.value}"
