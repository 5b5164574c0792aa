"""Go the whole way in one command: `python -m benchmarks.tour [--target sm_90]`.

Capture the transformer beside this file, evaluate a written kernel for each of two problems, export what was found
correct, and run the program with and without the packages. Needs python3 with torch, and a C++ compiler or nvcc;
nothing of the site. On a GPU the model runs in bfloat16, with `--fp16` in half precision.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = HERE / "transformer.py"
PROBLEMS = {"rms_norm": "RMSNorm", "gate": "Gate"}


def main() -> int:
    """Take every step, say what it showed, and return the exit code of the last."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tour", description=__doc__)
    parser.add_argument("--target", default="cpu", help="cpu, or the key of this machine's GPU such as sm_90")
    parser.add_argument("--fp16", action="store_true", help="half precision instead of bfloat16, on a GPU")
    parser.add_argument("--out", type=Path, default=Path("var/tour"), help="emptied first (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sessions", type=int, default=3)
    asked = parser.parse_args()
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    own = ["--", "fp16"] if asked.fp16 else []
    selected = [word for name in PROBLEMS.values() for word in ("--select", name)]
    step("capture", PROGRAM, "--call", "main", "--out", asked.out / "problems", *selected, *own)
    for name in PROBLEMS:
        export(asked, name)
    packages = [word for name in PROBLEMS for word in ("--package", asked.out / "packages" / name)]
    often = ["--rounds", asked.rounds, "--sessions", asked.sessions, "--json", asked.out / "endtoend.json"]
    return step("endtoend", PROGRAM, "--call", "main", *packages, *often, *own, expected=(0, 4, 5))


def export(asked: argparse.Namespace, name: str) -> None:
    """Evaluate the written kernel of a captured problem, and export it with its verdict."""
    kernel = written_kernel(asked, name)
    about = ["--problem", asked.out / "problems" / name, "--candidate", kernel, "--target", asked.target]
    result = asked.out / f"{name}.json"
    command = [sys.executable, "-m", "runners", "evaluate", *map(str, about), "--json"]
    print("$ python -m runners evaluate", *map(str, about), flush=True)
    result.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = json.loads(result.read_text())
    speedup = found["speedup"]
    shown = "{median:.3f}× ({low:.3f} to {high:.3f})".format(**speedup) if speedup else ""
    print(f"{name}: {found['status']} {found['verdict'] or ''} {shown}", *found["reasons"], "\n", flush=True)
    step("export", *about, "--result", result, "--out", asked.out / "packages" / name, "--licence", "Apache-2.0")


def written_kernel(asked: argparse.Namespace, name: str) -> Path:
    """Return the kernel's file. CUDA kernels serve both 16-bit types: the file names the one that is meant."""
    if asked.target == "cpu":
        return HERE / "kernels" / f"{name}.cpp"
    element = "__half" if asked.fp16 else "__nv_bfloat16"
    made: Path = asked.out / f"{name}.cu"
    text = (HERE / "kernels" / f"{name}.cu").read_text()
    made.write_text(text.replace("#define ELEMENT __nv_bfloat16", f"#define ELEMENT {element}"))
    return made


def step(*words: object, expected: tuple[int, ...] = (0,)) -> int:
    """Run a command of `python -m runners` and return its exit code. Ends the tour if it is not an expected one."""
    told = [str(word) for word in words]
    print("$ python -m runners", *told, flush=True)
    code = subprocess.run([sys.executable, "-m", "runners", *told], check=False).returncode
    print(flush=True)
    if code not in expected:
        sys.exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
