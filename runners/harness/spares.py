"""Sandboxed interpreters started ahead, with torch imported, the device opened and nothing else known: for Python
candidates on a GPU box. They stand still until they are wanted. Each serves one candidate process and is gone.
"""

from __future__ import annotations

import threading

from runners.harness.ahead import Ahead, warm_up
from runners.harness.devices import Device
from runners.harness.enclosure import Enclosure, enclose, new_inbox
from runners.harness.participant import candidate_policy, thread_count
from runners.job import Limits

LIFE_S = 3600.0


class Spares(Ahead[Enclosure]):
    """Spare processes of one device, for candidates under the usual limits. `with_triton`: have those that are started
    from now on prepare Triton too, which takes as long as importing torch."""

    with_triton = False

    def __init__(self, device: Device) -> None:
        super().__init__("spares", self._enclosed, lambda spare: spare.process.alive, Enclosure.close)
        self._device = device

    def take_for(self, limits: Limits) -> Enclosure | None:
        """A spare; None where there is none or the limits are unusual."""
        usual = Limits()
        if (limits.memory_bytes, limits.log_bytes) != (usual.memory_bytes, usual.log_bytes):
            return None
        return self.take()

    def _enclosed(self, wanted: threading.Event) -> Enclosure:
        inbox = new_inbox()
        policy = candidate_policy(self._device, Limits(total_s=LIFE_S), thread_count(), (inbox,))
        with_triton = self.with_triton
        spare = enclose("module", policy, ("torch", "triton") if with_triton else ("torch",), inbox)
        try:
            warm_up(spare.peer, self._device, wanted, with_triton=with_triton)
            spare.process.pause()
        except BaseException:
            spare.close()
            raise
        return spare
