"""Name what the referee and a trusted process have to agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Set to the driver's kind where trusted processes compute on a GPU.
DEVICE_VARIABLE = "KERNELSCI_DEVICE"
# How much to read there so that nothing of use is left in the caches.
FLUSH_VARIABLE = "KERNELSCI_FLUSH_BYTES"
# Set where an oracle shall take as little of its device's memory as possible.
SCARCE_VARIABLE = "KERNELSCI_SCARCE_MEMORY"

# Answers one question of the referee.
Answer = Callable[[dict[str, Any]], dict[str, Any]]
