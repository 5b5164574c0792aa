"""Start a launcher, by executing it or by having it forked, and reap it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from runners.sandbox.launch import Launch


@dataclass(frozen=True)
class Started:
    """Own a launcher that runs.

    `pidfd` refers to this process for ever, even after its number has been reused. `stdout` and `stderr` are
    descriptors for reading what it and the job print. `process` is None for a forked one, which is a server's child.
    """

    pid: int
    pidfd: int
    stdout: int
    stderr: int
    process: subprocess.Popen[bytes] | None

    def reap(self) -> tuple[int | None, float]:
        """Return the exit code (or minus the signal) of a launcher that has ended, and its processor time in seconds.

        A forked launcher's go to its server; what matters of them is in the status pipe.
        """
        if self.process is None:
            return None, 0.0
        _, wait_status, resources = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(wait_status)
        return self.process.returncode, resources.ru_utime + resources.ru_stime

    def close(self) -> None:
        """Close the streams."""
        os.close(self.stdout)
        os.close(self.stderr)


def start(launch: Launch, stdin: int) -> Started:
    """Start the launcher. Raises OSError, SandboxError."""
    stdout, out = os.pipe2(os.O_CLOEXEC)
    stderr, err = os.pipe2(os.O_CLOEXEC)
    try:
        if launch.fork is not None:
            pid, pidfd = launch.fork.server.fork(launch.fork.config_fd, (stdin, out, err, *launch.fds))
            return Started(pid, pidfd, stdout, stderr, None)
        process = _executed(launch, stdin, out, err)
        return Started(process.pid, os.pidfd_open(process.pid), stdout, stderr, process)
    except BaseException:
        os.close(stdout)
        os.close(stderr)
        raise
    finally:
        os.close(out)
        os.close(err)


def _executed(launch: Launch, stdin: int, out: int, err: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        stdin=stdin,
        stdout=out,
        stderr=err,
        pass_fds=launch.fds,
        # Signals to our terminal's group must not reach the job.
        start_new_session=True,
    )
