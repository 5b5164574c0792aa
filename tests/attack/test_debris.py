"""Attack the clean-up: what a job leaves on the disk must neither fail later evaluations nor lead root elsewhere."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.sandbox import ResourceLimits, SandboxLevel, SandboxPolicy, python_paths, run, sweep_orphans
from runners.sandbox.probe import why_not
from runners.sandbox.removal import remove_tree
from runners.sandbox.supervisor import supervisor_name
from runners.sandbox.workspace import new_folder, work_folder, work_root

# Deeper than Python recurses, and with a path many times as long as one may be.
DEPTH = 1100
INTERPRETER = [sys.executable, "-I", "-S", "-c"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led to files of others")

# What a job runs: nested folders with names as long as a name can be, the last of them closed.
DIGS = f"""
import os
here = os.open(PLACE, os.O_RDONLY)
for _ in range({DEPTH}):
    os.mkdir("d" * 250, dir_fd=here)
    inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
    os.close(here)
    here = inner
os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
os.fchmod(here, 0)
"""


def dig(folder: Path) -> None:
    """Make the tree outside any sandbox."""
    exec(DIGS, {"PLACE": str(folder)})  # noqa: S102 - the job's own program


def _wide(folder: Path) -> None:
    for number in range(3000):
        (folder / f"{number}-{'w' * 200}").touch()


def _closed(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0)
    inner.parent.chmod(0)


def _odd_names(folder: Path) -> None:
    for name in (b"\xff\xfe", b"\n", b"-rf", b" ", "ü".encode()):
        inner = folder / os.fsdecode(name)
        inner.mkdir()
        os.mkfifo(inner / "fifo")


@pytest.mark.parametrize("leave", [dig, _wide, _closed, _odd_names])
def test_whatever_is_left_is_removed_with_few_descriptors_open(
    leave: Callable[[Path], None], tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    leave(tree)
    assert remove_tree(tree)
    assert not tree.exists()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python's rmtree does not recurse")
def test_control_removal_by_path_fails_on_a_deep_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    dig(tree)
    try:
        with pytest.raises((RecursionError, OSError)):
            shutil.rmtree(tree)
    finally:
        assert remove_tree(tree)


def test_links_in_a_tree_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("mine")
    tree = tmp_path / "tree"
    (tree / "in").mkdir(parents=True)
    (tree / "link").symlink_to(kept)
    (tree / "in" / "link").symlink_to(kept / "file")
    os.link(kept / "file", tree / "in" / "hard")
    assert remove_tree(tree)
    assert (kept / "file").read_text() == "mine"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o755


def test_folder_that_is_itself_a_link_loses_the_link_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "tree").symlink_to(kept)
    assert remove_tree(tmp_path / "tree")
    assert (kept / "file").exists()


def test_folder_that_becomes_a_link_again_and_again_never_leads_elsewhere(tmp_path: Path) -> None:
    """Race the removal: another thread exchanges a directory for a link to something that must stay as it is."""
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    (kept / "inner").mkdir(parents=True, mode=0o755)
    (kept / "file").touch(mode=0o640)
    over = threading.Event()

    def exchange() -> None:
        link, folder = tmp_path / "link", tree / "in"
        while not over.is_set():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                link.symlink_to(kept)
                folder.rename(tmp_path / "aside")
                link.rename(folder)
                shutil.rmtree(tmp_path / "aside", ignore_errors=True)
            except OSError:
                link.unlink(missing_ok=True)

    racer = threading.Thread(target=exchange)
    racer.start()
    try:
        for _ in range(300):
            remove_tree(tree)
    finally:
        over.set()
        racer.join()
    assert (kept / "inner").is_dir() and stat.S_IMODE((kept / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE(kept.stat().st_mode) == 0o755


@as_root
def test_names_like_ours_in_the_shared_temporary_directory_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user makes names that look like those of a dead supervisor; the control sweeps the same name of ours."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o500)
    dead = f"{supervisor_name()}0-scratch-abc"
    bait = tmp_path / dead
    bait.mkdir()
    (bait / "in").symlink_to(victim)
    ours = work_root() / dead
    ours.mkdir()
    (ours / "in").symlink_to(victim)
    sweep_orphans()
    assert bait.exists() and not ours.exists()
    assert victim.is_dir() and stat.S_IMODE(victim.stat().st_mode) == 0o500


@as_root
@pytest.mark.parametrize("squat", ["folder of another user", "open folder", "link", "file"])
def test_name_of_our_folder_that_somebody_else_took_is_not_used(
    squat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))
    usual = work_root()
    usual.rmdir()
    if squat == "link":
        (tmp_path / "theirs").mkdir()
        usual.symlink_to(tmp_path / "theirs")
    elif squat == "file":
        usual.touch()
    else:
        usual.mkdir()
        os.chown(usual, 65534, 65534) if squat == "folder of another user" else usual.chmod(0o777)
    found = work_root()
    assert found != usual and found.stat().st_uid == 0
    with work_folder("job-") as folder:
        assert folder.parent == found


@pytest.mark.processes
@pytest.mark.parametrize("level", [SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK], ids=str)
def test_job_that_digs_in_its_writable_folder_and_scratch_fails_nothing_later(level: SandboxLevel) -> None:
    if reason := why_not(level):
        pytest.skip(reason)
    with work_folder("job-") as folder:
        out = folder / "out"
        out.mkdir()
        code = "\n".join(DIGS.replace("PLACE", place) for place in (repr(str(out)), "os.environ['TMPDIR']"))
        policy = SandboxPolicy(python_paths(), writable=(out,), limits=ResourceLimits(wall_s=20))
        done = run([*INTERPRETER, code], policy, level=level)
        assert done.ok or done.killed_reason, done.stderr
        assert any(out.iterdir()), "the control: the job did dig"
    assert not folder.exists()
    assert [path for path in work_root().iterdir() if path.name.startswith(supervisor_name())] == []


def test_debris_of_a_dead_supervisor_is_swept_and_what_cannot_be_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = work_root() / f"{supervisor_name()}0-job-abc"
    dead.mkdir()
    dig(dead)
    assert sweep_orphans() == []
    assert not dead.exists()
    monkeypatch.setattr("runners.sandbox.orphans.remove_at", lambda _parent, _name: False)
    dead.mkdir()
    assert sweep_orphans() == []


def test_folders_of_the_living_are_never_swept() -> None:
    folder = new_folder("job-")
    try:
        sweep_orphans()
        assert folder.exists()
    finally:
        remove_tree(folder)
