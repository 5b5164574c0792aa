"""Store problems in the database. A changed problem becomes a new version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from django.db import transaction
from django.utils.text import slugify

from optimizer.models import Problem, ProblemVersion, Team
from optimizer.text.storable import storable, storable_text
from runners import wire
from runners.job import ProblemBundle
from runners.problems import load, open_bundle, shipped
from runners.problems.base import ProblemError
from runners.problems.signature import FILE as SIGNATURE_FILE


def do_sync_shipped_problems() -> list[ProblemVersion]:
    """Store every shipped problem in its present state. May run repeatedly and in several processes at once."""
    return [do_store_problem(load(name)) for name in shipped()]


def do_import_problem(
    bundle: ProblemBundle, origin: str, warnings: tuple[str, ...], team: Team | None = None
) -> tuple[ProblemVersion, bool]:
    """Store the problem that was read from `origin`. Return its version and whether it is new.

    `warnings` are kept with a new version. A problem keeps its own name, prefixed with its folder's name where a
    problem of another origin has taken it. Raises runners.problems.ProblemError where both are taken.
    """
    slug = _free_slug(bundle, origin)
    bundle = _with_known_signature(bundle, slug)
    known = ProblemVersion.objects.filter(problem__slug=slug, content_hash=bundle.content_hash).exists()
    kept = tuple(storable_text(warning) for warning in warnings)
    return do_store_problem(replace(bundle, name=slug), origin, kept, team), not known


def _with_known_signature(bundle: ProblemBundle, slug: str) -> ProblemBundle:
    """Take over the derived signature of the newest version where nothing else differs: an import that runs nothing
    derives none, and must not look like a change."""
    newest = ProblemVersion.objects.filter(problem__slug=slug).order_by("-number").first()
    if newest is None or SIGNATURE_FILE in bundle.files:
        return bundle
    stored = newest.as_bundle().files
    without = {name: text for name, text in stored.items() if name != SIGNATURE_FILE}
    return replace(bundle, files=stored) if without == bundle.files else bundle


def _free_slug(bundle: ProblemBundle, origin: str) -> str:
    folder = PurePath(origin).parent.name
    wanted = [_slug(bundle.name), _slug(f"{folder}-{bundle.name}")]
    for slug in wanted:
        owner = Problem.objects.filter(slug=slug).first()
        if slug and (owner is None or owner.origin == origin):
            return slug
    # A problem of another origin is never overwritten, since runs refer to it.
    raise ProblemError([f"{bundle.name}: problems from elsewhere are called {' and '.join(wanted)}"])


def _slug(name: str) -> str:
    return slugify(name)[:120].strip("-_")


def do_store_problem(
    bundle: ProblemBundle, origin: str = "shipped", warnings: tuple[str, ...] = (), team: Team | None = None
) -> ProblemVersion:
    """Return the version with exactly these files, creating it if necessary. Raises runners.problems.ProblemError.

    `team` sees a new problem, None: everybody. A problem that exists stays visible to whom it was.
    """
    opened = open_bundle(bundle)
    with transaction.atomic():
        slug = bundle.name[:120]
        # Create before locking: a row that does not exist cannot be locked.
        Problem.objects.get_or_create(
            slug=slug, defaults={"title": storable_text(opened.title)[:200], "origin": origin, "team": team}
        )
        # Lock the problem, so that two processes do not both add the same version or choose the same number.
        problem = Problem.objects.select_for_update().get(slug=slug)
        known = problem.versions.filter(content_hash=bundle.content_hash).first()
        return known or _add_version(
            problem, bundle, opened.description, [str(x) for x in opened.languages], warnings
        )


def _add_version(
    problem: Problem, bundle: ProblemBundle, description: str, languages: list[str], warnings: tuple[str, ...]
) -> ProblemVersion:
    newest = problem.versions.order_by("-number").first()
    return ProblemVersion.objects.create(
        problem=problem,
        number=newest.number + 1 if newest else 1,
        content_hash=bundle.content_hash,
        bundle=storable(wire.to_plain(bundle)),
        description=storable_text(description),
        languages=languages,
        warnings=list(warnings),
    )
