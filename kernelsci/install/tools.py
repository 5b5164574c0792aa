"""Choose what installs packages: uv, which pip fetches where it is missing, else pip.

uv installs these packages with less processor time than pip (docs/evidence/fresh-machines.md); its wheel has 20 MB.
"""

from __future__ import annotations

import ast
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

UV = "uv==0.13.9"
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar=off")
# pip's settings by the variables that tell uv the same, and what separates several values.
TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "no-cache-dir": ("UV_NO_CACHE", " "),
}
# Settings that choose packages or the way to an index, and that no variable tells uv.
PIP_ONLY = {"no-index", "client-cert", "proxy", "constraint", "no-binary", "only-binary", "require-hashes", "pre"}


@dataclass(frozen=True)
class Tool:
    """Name the command that installs into this interpreter's environment, and the variables that it runs with."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def choose(environment: Mapping[str, str]) -> Tool:
    """Return uv, or pip where INSTALLER says so, uv cannot be fetched, or pip is configured as uv cannot be."""
    pip = of_pip(environment)
    if environment.get("INSTALLER", "uv") != "uv":
        return pip
    settings = pip_settings(environment)
    uv = shutil.which("uv")
    if not uv and settings.keys().isdisjoint(PIP_ONLY):
        uv = _fetch_uv(pip)
    if not uv:
        return pip
    command = [uv, "pip", "install", "--python", sys.executable]
    return Tool("uv", command, uv_environment(settings, environment))


def of_pip(environment: Mapping[str, str]) -> Tool:
    """Return pip, which is in every environment."""
    return Tool("pip", [sys.executable, "-m", "pip", "install", *PIP_OPTIONS], dict(environment))


def pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what pip's files and variables configure, by name without the section."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(environment)).stdout
    found = {}
    # In the order in which pip lets one section replace another.
    for section in ("global.", "install.", ":env:."):
        for line in said.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                with suppress(ValueError, SyntaxError):
                    found[name.removeprefix(section)] = str(ast.literal_eval(value))
    return found


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to run uv with. uv reads none of pip's settings, so it is told; its own come first."""
    said = {
        variable: separator.join(settings[name].split())
        for name, (variable, separator) in TO_UV.items()
        if settings.get(name)
    }
    if "UV_INDEX" in said:
        # As pip does: the best version of all indexes, instead of the first index that has the package.
        said["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if not _is_writable(_cache(environment)):
        said["UV_CACHE_DIR"] = str(spare_cache())
    if _has_certificates():
        # A company's certificate authority is known to the system alone; pip asks the system, uv its own list.
        said["UV_SYSTEM_CERTS"] = "1"
    # Sandboxed processes cannot write bytecode, and would compile torch at every start.
    return {"UV_COMPILE_BYTECODE": "1", **said, **environment}


def spare_cache() -> Path:
    """Return the folder of uv's cache while it installs, where the home cannot be written."""
    return Path(sys.prefix) / "uv-cache"


def _has_certificates() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())))


def _cache(environment: Mapping[str, str]) -> Path:
    if named := environment.get("UV_CACHE_DIR"):
        return Path(named)
    return Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "uv"


def _is_writable(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)


def _fetch_uv(pip: Tool) -> str | None:
    """Install uv beside this interpreter and return its path, None where it cannot be had."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        command = [*pip.command, "--quiet", "--no-deps", "--only-binary", ":all:", UV]
        subprocess.run(command, capture_output=True, check=False, env=pip.environment)
    return str(uv) if uv.exists() else None
