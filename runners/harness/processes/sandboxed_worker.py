"""Start a sandboxed interpreter that runs the candidate's program, before or after its kernel is known.

The paths that it is told later, in its `hello`, are visible in its sandbox: the artefact itself, or copies in an
inbox that was made for a process started ahead. Memory to compute in comes as a descriptor over the channel.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.backends.base import LIBRARIES, Artefact
from runners.harness.memory.contents import Setups
from runners.harness.processes.peer import Peer
from runners.harness.processes.preloading import PROGRAM, TORCH
from runners.sandbox import Sandboxed, SandboxPolicy, new_folder, remove_tree, spawn

# Makes a package of that one folder: nothing beside it is on the import path.
BOOTSTRAP = (
    "import sys, types; package = types.ModuleType('candidate'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['candidate'] = package; from candidate.main import main; main(*sys.argv[2:])"
)


@dataclass
class SandboxedWorker:
    """Hold the process, our end of its channel, and its inbox if it has one."""

    peer: Peer
    process: Sandboxed
    inbox: Path | None = None

    def placed(self, artefact: Artefact, setups: Setups) -> dict[str, str]:
        """Return where the process finds artefact, caches and setups: at their own paths, or copied into its inbox."""
        folder, inbox = setups.folder, self.inbox
        if inbox is None:
            placed = (artefact.loadable, artefact.caches or "", folder or "")
        else:
            copied = shutil.copytree(folder, inbox / "setups", copy_function=_linked) if folder else ""
            caches = _copied(artefact.caches, inbox) if artefact.caches else ""
            placed = (_copied(artefact.loadable, inbox), caches, copied)
        return dict(zip(("path", "caches", "setups"), map(str, placed), strict=True))

    def close(self) -> None:
        """Close the connection and kill; return when nothing of the process is left."""
        self.peer.close()
        self.process.kill()
        self.process.wait(10.0)
        if self.inbox is not None:
            remove_tree(self.inbox)


def start_worker(
    kind: str,
    policy: SandboxPolicy,
    preload: tuple[str, ...] = TORCH,
    inbox: Path | None = None,
    around: Callable[[Sequence[str]], list[str]] = list,
) -> SandboxedWorker:
    """Start the program for artefacts of that kind. Raises SandboxError.

    `preload` names modules that a module's process has imported before it is told anything; absolute paths in it name
    files that only the fork server runs. `around` wraps its command line in another's, a profiler's, which is executed.
    """
    peer = Peer()
    # -S leaves out site packages, which a native kernel does not need.
    isolation, preload = (["-I", "-S"], ()) if kind in LIBRARIES else (["-I"], preload)
    channel_fd = peer.far_socket.fileno()
    imports = ",".join(name for name in preload if not name.startswith("/"))
    argv = [sys.executable, *isolation, "-c", BOOTSTRAP, str(PROGRAM), str(channel_fd), imports]
    try:
        process = spawn(around(argv), policy, (channel_fd,), preloaded=preload)
    except BaseException:
        peer.close()
        raise
    peer.started()
    return SandboxedWorker(peer, process, inbox)


def new_inbox() -> Path:
    """Make an empty folder that the sandbox's user may read."""
    return new_folder("inbox-")


def _copied(file: Path, inbox: Path) -> Path:
    path = inbox / file.name
    shutil.copyfile(file, path)
    path.chmod(0o644)
    return path


def _linked(source: str, target: str) -> str:
    """Link a file under another name, or copy it if that fails."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
