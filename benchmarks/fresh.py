"""Try `make start` on fresh machines: distributions that debootstrap makes, entered as a person without root.

    sudo python3 -m benchmarks.fresh trixie                        # Debian 13, from nothing to the first verdict
    sudo python3 -m benchmarks.fresh jammy --mirror http://archive.ubuntu.com/ubuntu --components main,universe
    sudo python3 -m benchmarks.fresh forky --script sid        # a distribution that debootstrap does not know yet
    sudo python3 -m benchmarks.fresh bookworm --carry /opt/wheels --environment PIP_FIND_LINKS

Each machine is a folder that is entered by chroot, in namespaces of its own. It begins with what debootstrap calls
minbase, and make. The first `make start` must refuse, and its one command must mend everything; the second must end at
a page, in a folder whose name has a space and a letter outside ASCII; then `make check` must pass. One line a machine
is added to the table of docs/evidence/fresh-machines.md. `--folder` keeps the untouched machines and uses those that
are there. Standard library only. Needs root, debootstrap, and minutes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "evidence" / "fresh-machines.md"
SCRIPTS = "/usr/share/debootstrap/scripts"
DEBIAN = "http://deb.debian.org/debian"
PERSON, HOME = "kim", "/home/kim"
CLONE = f"{HOME}/kernel scientist é"
PAGE_WITHIN_S, VERDICT_WITHIN_S = 1800, 600
VERDICTS = "from optimizer.models import Evaluation as E; print(E.objects.filter(state='done').count())"


# The process of a `make start`, and what it has printed so far.
Started = tuple["subprocess.Popen[bytes]", Callable[[], str]]


@dataclass
class Result:
    """Hold what was measured on one machine."""

    machine: str
    python: str = ""
    installed_s: int = 0
    page_s: int = 0
    processor_s: int = 0
    second_s: int = 0
    verdict_s: int | None = None
    megabytes: int = 0
    torch: str = ""
    servers: str = ""
    check: str = "not tried"

    def row(self) -> str:
        """Return the line of the report's table."""
        verdict = f"{self.verdict_s} s" if self.verdict_s is not None else "not tried"
        cells = [
            self.machine, self.python, self.torch, self.servers, f"{self.installed_s} s", f"{self.page_s} s",
            f"{self.processor_s} s", verdict, f"{self.second_s} s", f"{self.megabytes:,} MB", self.check,
            f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


class Machine:
    """Run commands in a folder with a distribution."""

    def __init__(self, folder: Path, carried: Sequence[str], environment: Sequence[str]) -> None:
        self.folder = folder
        self.carried = carried
        self.environment = environment

    def run(self, script: str, *, person: str = PERSON, check: bool = True) -> str:
        """Run a shell script as `person` and return all it prints. Raises RuntimeError when it fails."""
        done = subprocess.run(
            self.command(script, person), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{script}\n{done.stdout[-3000:]}")
        return done.stdout

    def command(self, script: str, person: str = PERSON) -> list[str]:
        """Return the command that runs a script there. It ends with its namespaces, and every process in them."""
        mounts = ["mount -t proc proc {0}/proc", "mount --rbind /dev {0}/dev", "mount --rbind /sys {0}/sys"]
        mounts += ["mkdir -p {0}" + path + " && mount --bind " + path + " {0}" + path for path in self.carried]
        setup = " && ".join(mounts).format(self.folder)
        home = HOME if person == PERSON else "/root"
        # A login's environment and nothing of ours, except what a mirror of packages needs.
        kept = [f"{name}={os.environ[name]}" for name in self.environment if name in os.environ]
        enter = [
            "env",
            "-i",
            f"HOME={home}",
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL=C",
            *kept,
        ]
        enter += ["chroot", *([f"--userspec={PERSON}:{PERSON}"] if person == PERSON else []), str(self.folder)]
        inner = [*enter, "sh", "-c", script]
        # A shell stays as the namespace's first process: make 4.4, asked to end, tries for ever to kill itself by a
        # signal that the first process of a namespace never gets.
        return [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
            "sh", "-c", f'{setup} && {{ "$@"; exit $?; }}', "sh", *inner,
        ]  # fmt: skip


@contextmanager
def machine(suite: str, options: argparse.Namespace) -> Iterator[Machine]:
    """Make a minimal machine with a person and a clone, and remove it at the end."""
    with ExitStack() as stack:
        base = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelsci-fresh-")))
        untouched, folder = base / suite, base / f"{suite}.tried"
        if not (untouched / "bin/sh").exists():
            command = ["debootstrap", "--variant=minbase", "--include=ca-certificates,make"]
            command += [f"--components={options.components}", *options.debootstrap, suite, str(untouched)]
            script = [f"{SCRIPTS}/{options.script}"] if options.script else []
            subprocess.run([*command, options.mirror, *script], check=True, stdout=subprocess.DEVNULL)
        stack.callback(subprocess.run, ["rm", "-rf", str(folder)], check=False)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        subprocess.run(["cp", "-a", str(untouched), str(folder)], check=True)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs/ca-certificates.crt")
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        # Every installed machine has it; debootstrap leaves it to the installer.
        (folder / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        found = Machine(folder, options.carry, options.environment)
        found.run(f"id {PERSON} 2>/dev/null || useradd --create-home {PERSON}; rm -rf '{CLONE}'", person="root")
        _clone(folder)
        found.run(f"chown -R {PERSON}: {HOME}", person="root")
        yield found


def _clone(folder: Path) -> None:
    target = folder / CLONE.lstrip("/")
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive, check=True)


def mend(here: Machine) -> str:
    """Let `make start` refuse, run the command that it names, and return it. Raises RuntimeError without one."""
    # What any machine in use has had; the names of packages follow from it.
    here.run("apt-get update -qq", person="root")
    begin = time.monotonic()
    refusal = here.run(f"cd '{CLONE}' && make start", check=False)
    took_s = time.monotonic() - begin
    found = re.search(r"^    (?:sudo )?(\w.* install .*)$", refusal, re.MULTILINE)
    if not found or took_s > 30:
        raise RuntimeError(f"no command to mend the machine within {took_s:.0f} s:\n{refusal[-3000:]}")
    here.run(f"DEBIAN_FRONTEND=noninteractive {found[1]}", person="root")
    return found[1]


def start(here: Machine, options: argparse.Namespace, result: Result) -> int:
    """Run `make start` until its page answers, and return the seconds; once more for the first verdict."""
    with _starting(here, options) as (process, output):
        page_s = _wait(lambda: re.search(r"Up (\d+) s after make start", output()), PAGE_WITHIN_S, output)
        if not result.page_s:
            result.processor_s = _processor_s(process.pid)
        if not result.page_s and options.verdict:
            begin = time.monotonic()
            _wait(lambda: re.match("[1-9]", _verdicts(here)), VERDICT_WITHIN_S, output)
            result.verdict_s = page_s + int(time.monotonic() - begin)
        if not result.page_s and (installed := re.search(r"Installed in (\d+) s, ([\d,]+) MB", output())):
            result.installed_s, result.megabytes = int(installed[1]), int(installed[2].replace(",", ""))
        return page_s


@contextmanager
def _starting(here: Machine, options: argparse.Namespace) -> Iterator[Started]:
    path = here.folder.parent / f"{here.folder.name}.out"
    with path.open("wb") as file:
        script = f"cd '{CLONE}' && exec make start {options.make} UP='--port 8970'"
        process = subprocess.Popen(
            here.command(script), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield process, lambda: path.read_text(errors="replace") + ("" if process.poll() is None else "\nENDED")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _processor_s(pid: int) -> int:
    """Return the processor time of a process and its descendants, the ended ones included, in seconds."""
    ticks, children = {}, defaultdict(list)
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # proc_pid_stat(5): after the name in parentheses come state, parent, and from the 12th four times.
            fields = file.read_text().rpartition(")")[2].split()
            number = int(file.parent.name)
            ticks[number] = sum(map(int, fields[11:15]))
            children[int(fields[1])].append(number)
    family = [pid]
    for member in family:
        family += children[member]
    return sum(ticks.get(member, 0) for member in family) // os.sysconf("SC_CLK_TCK")


def _wait(condition: Callable[[], re.Match[str] | None], within_s: float, output: Callable[[], str]) -> int:
    until = time.monotonic() + within_s
    while time.monotonic() < until and not output().endswith("ENDED"):
        if found := condition():
            return int(found[1]) if found.groups() else 0
        time.sleep(1)
    raise RuntimeError(output()[-4000:])


def _verdicts(here: Machine) -> str:
    return here.run(f"cd '{CLONE}' && .venv/bin/python manage.py shell -v 0 -c \"{VERDICTS}\"", check=False)


def facts(here: Machine, result: Result) -> None:
    """Note what the doctor says of Python, torch and the servers."""
    said = here.run(f"cd '{CLONE}' && .venv/bin/python manage.py doctor --json", check=False)
    found = {fact["name"]: fact["detail"] for fact in json.loads(said[said.index("{") :])["facts"]}
    result.python = found["python"].split(" ")[0]
    result.torch = found["torch"].partition(":")[0]
    servers = [
        re.search(r"\((\w+), (\d+)", found["PostgreSQL"]),
        re.search(r"^(\w+ [\d.]+).*\((\w+)", found["Redis"]),
    ]
    postgres, redis = servers
    result.servers = f"PostgreSQL {postgres[2]} ({postgres[1]})" if postgres else found["PostgreSQL"]
    result.servers += f", {redis[1]} ({redis[2]})" if redis else f", {found['Redis']}"


def checked(here: Machine, options: argparse.Namespace) -> str:
    """Run `make check` and return its seconds, installing included, and what pytest counted. Prints what failed."""
    begin = time.monotonic()
    said = here.run(f"cd '{CLONE}' && make check {options.make} && echo ALL SOUND", check=False)
    took = f"{time.monotonic() - begin:.0f} s"
    counted = re.findall(r"^\D{0,20}((?:\d+ failed, )?\d+ passed.*) in [\d.]+s", said, re.MULTILINE)
    if said.rstrip().endswith("ALL SOUND"):
        return f"{took}: {counted[-1] if counted else 'passed'}"
    print(said[-12_000:], flush=True)
    return f"{took}: **failed**{': ' + counted[-1] if counted else ''}"


def attempt(suite: str, options: argparse.Namespace) -> Result:
    """Try one distribution."""
    with machine(suite, options) as here:
        name = re.search(r'PRETTY_NAME="(.*)"', here.run("cat /etc/os-release"))
        result = Result(f"{name[1] if name else suite}, {os.uname().machine}")
        print(f"{result.machine}: mended by {mend(here)}", flush=True)
        result.page_s = start(here, options, result)
        result.second_s = start(here, options, result)
        facts(here, result)
        if options.check:
            result.check = checked(here, options)
        return result


def main() -> int:
    """Try the distributions named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", metavar="SUITE", help="a distribution, as debootstrap names it")
    parser.add_argument("--mirror", default=DEBIAN)
    parser.add_argument("--components", default="main", help="of the distribution; Ubuntu needs main,universe")
    parser.add_argument("--script", metavar="SUITE", help="whose script serves, where debootstrap knows no SUITE")
    parser.add_argument(
        "--debootstrap", action="append", default=[], metavar="=OPTION", help="such as --debootstrap=--keyring=FILE"
    )
    parser.add_argument("--folder", help="keep the machines here, and use those that are there")
    parser.add_argument(
        "--carry", action="append", default=[], metavar="PATH", help="also visible there, at this path"
    )
    parser.add_argument("--environment", action="append", default=[], metavar="NAME", help="variable to hand on")
    parser.add_argument("--make", default="", help="arguments of make, such as TORCH_INDEX=none")
    parser.add_argument("--no-verdict", dest="verdict", action="store_false", help="stop at the page")
    parser.add_argument("--no-check", dest="check", action="store_false", help="leave out `make check`")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("benchmarks.fresh needs root and debootstrap: apt-get install debootstrap")
    for suite in options.suites:
        row = attempt(suite, options).row()
        print(row, flush=True)
        REPORT.write_text(with_row(REPORT.read_text(), row))
    return 0


def with_row(report: str, row: str) -> str:
    """Return the report with a row at the end of the table of machines, instead of the older one of that machine."""
    lines = report.splitlines()
    last = next(number for number, line in enumerate(lines) if line.startswith("| machine |")) + 1
    machine = row.split("|")[1]
    while last + 1 < len(lines) and lines[last + 1].startswith("|"):
        if lines[last + 1].split("|")[1] == machine:
            del lines[last + 1]
        else:
            last += 1
    return "\n".join([*lines[: last + 1], row, *lines[last + 1 :]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
