"""Collect static files once for a running site, each under a name with the hash of its content.

An upgrade writes new names. A browser therefore never mixes old and new files, a page never gets the length of a file
that has changed since the server read it, and browsers may keep every file forever.
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
    """Return the collected names of static files.

    A file that was added under a running site has none. It keeps its plain name, for which `late_file` answers,
    instead of failing the page that requests it.
    """

    def stored_name(self, name: str) -> str:
        """Return the collected name, or the plain one. Raises ValueError where the file does not exist at all."""
        try:
            return str(super().stored_name(name))
        except ValueError:
            if find(name) is None:
                raise
            # A missing name would otherwise fail every page that uses the file, during an upgrade in particular.
            logger.warning("%s was not collected; restart the site so that browsers can cache it", name)
            return name


@require_safe
def late_file(request: HttpRequest, path: str) -> HttpResponseBase:
    """Serve a static file that did not exist when the site started. WhiteNoise serves all others."""
    return serve(request, path, insecure=True)


def collect(folder: Path, base_url: str) -> int:
    """Bring the folder up to date and return the number of files.

    Files of older versions stay, because open pages still name them. Raises what is wrong with a file, such as a
    style sheet that refers to a missing one.
    """
    target = CompressedManifestStaticFilesStorage(location=folder, base_url=base_url)
    found = _found()
    changed = {path: (target, path) for path, source in found.items() if _copy(path, source, target)}
    if changed or not target.manifest_storage.exists(target.manifest_name):
        _hash({path: (target, path) for path in found}, target)
    return len(found)


def _found() -> dict[str, tuple[Storage, str]]:
    """Return every static file by its address; of two with the same address, the first finder's, as when served."""
    found: dict[str, tuple[Storage, str]] = {}
    for finder in get_finders():
        for path, storage in finder.list([]):
            prefix = getattr(storage, "prefix", None)
            # The first finder wins, as it does when Django serves the files itself.
            found.setdefault(f"{prefix}/{path}" if prefix else path, (storage, path))
    return found


def _copy(path: str, source: tuple[Storage, str], target: Any) -> bool:
    """Return whether the copy had to be renewed. Only the content is compared, as installers may set any time stamp."""
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
