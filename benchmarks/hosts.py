"""Worker hosts as network namespaces: each has an address, a cable to a switch, and nothing else. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NETWORK = "10.213.77"
SERVER = f"{NETWORK}.1"
BRIDGE = "ksbench"


class Host:
    """Represent one worker host. `prefix` runs a command there."""

    def __init__(self, number: int) -> None:
        self.name, self.cable = f"ksbench{number}", f"ksbench{number}a"
        self.address = f"{NETWORK}.{10 + number}"
        self.prefix = ["ip", "netns", "exec", self.name]

    def plug_in(self) -> None:
        """Make the namespace and its cable."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self.cable, "master", BRIDGE, "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{self.address}/24", "dev", "eth0"],
                      ["link", "set", "eth0", "up"]):  # fmt: skip
            _ip("-n", self.name, *words)

    def cut_off(self) -> None:
        """Pull the cable: packets vanish, nobody is told."""
        _ip("link", "set", self.cable, "down")

    def reconnect(self) -> None:
        """Put the cable back."""
        _ip("link", "set", self.cable, "up")

    def unplug(self) -> None:
        """Take the host away."""
        _ip("netns", "del", self.name, check=False)
        _ip("link", "del", self.cable, check=False)


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Yield so many hosts behind a switch that has the server's address, and remove them all at the end."""
    if os.geteuid() != 0:
        raise SystemExit("network namespaces need root")
    made = [Host(number + 1) for number in range(count)]
    _ip("link", "add", BRIDGE, "type", "bridge")
    try:
        _ip("addr", "add", f"{SERVER}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for host in made:
            host.plug_in()
        yield made
    finally:
        for host in made:
            host.unplug()
        _ip("link", "del", BRIDGE, check=False)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)
