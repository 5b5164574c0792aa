"""Static files as a running site serves them: copied aside once, each under a name with the hash of its content.

An upgrade writes new names, so a browser never mixes old and new, a page never gets the length of a file that has
changed since the server looked at it, and every file may be kept by browsers for ever.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import find, get_finders
from django.contrib.staticfiles.views import serve
from django.core.files.storage import Storage
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.http import require_safe
from whitenoise.storage import CompressedManifestStaticFilesStorage

logger = logging.getLogger(__name__)


class CollectedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # whitenoise has no types for it
    """The names under which files were collected. One that was added since, under a running site, has none: it goes by
    its plain name, where `late_file` answers, instead of failing the page that asks for it."""

    def stored_name(self, name: str) -> str:
        """The collected name, or the plain one. Raises ValueError where there is no such file at all."""
        try:
            return str(super().stored_name(name))
        except ValueError:
            if find(name) is None:
                raise
            logger.warning("%s was not collected; restart the site to have browsers keep it", name)
            return name


@require_safe
def late_file(request: HttpRequest, path: str) -> HttpResponseBase:
    """A static file that was not there when the site started. WhiteNoise answers for all others."""
    return serve(request, path, insecure=True)


def collect(folder: Path, base_url: str) -> int:
    """Bring the folder up to date; how many files there are. Files of older versions stay: pages that are open still
    name them. Raises whatever is wrong with a file, such as a style sheet that names another that is not there."""
    target = CompressedManifestStaticFilesStorage(location=folder, base_url=base_url)
    found = _found()
    changed = {path: (target, path) for path, source in found.items() if _copy(path, source, target)}
    if changed or not target.manifest_storage.exists(target.manifest_name):
        _hash({path: (target, path) for path in found}, target)
    return len(found)


def _found() -> dict[str, tuple[Storage, str]]:
    """Every static file by its address; of two with one address the first finder's counts, as when served."""
    found: dict[str, tuple[Storage, str]] = {}
    for finder in get_finders():
        for path, storage in finder.list([]):
            prefix = getattr(storage, "prefix", None)
            found.setdefault(f"{prefix}/{path}" if prefix else path, (storage, path))
    return found


def _copy(path: str, source: tuple[Storage, str], target: Any) -> bool:
    """Whether the copy had to be renewed. Length and content decide: an installer may set any times it likes."""
    storage, name = source
    with storage.open(name) as file:
        content = file.read()
    old = Path(target.path(path))
    if old.exists() and old.read_bytes() == content:
        return False
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_bytes(content)
    return True


def _hash(found: dict[str, Any], target: Any) -> None:
    for _name, _hashed, outcome in target.post_process(found, dry_run=False):
        if isinstance(outcome, Exception):
            raise outcome
