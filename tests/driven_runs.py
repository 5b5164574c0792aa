"""Make driven runs and campaigns from the rows of one that was driven once in this process.

To drive a run to its end takes five hundred queries, and most tests of what is shown of a run, or of what happens to it
later, do not care how it got there. Tests of the loop itself call `drive`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.apps import apps
from django.db import connection, models, transaction

from optimizer.models import AuditEntry, ProblemVersion, Run, Team, User
from optimizer.queries import compiled_ahead
from optimizer.runs import drift, history
from tests.factories import drive, make_run, make_team, make_user, store_problems_and_targets
from tests.rollback import rolled_back

ROUNDS = 100
"""More than any run takes to its end."""
KEPT_BY_KEY = (history._finished_view, drift._anchor, compiled_ahead._finished)
"""Caches of the test process by primary key, which successive copies share."""


Make = Callable[[Team, User | None], Iterator[models.Model]]
"""A function that drives a run or campaign of a team, started by a person or by nobody, and yields it at each stage of
which tests want copies."""


@dataclass(frozen=True)
class Driven:
    """Hold the rows that were made: by model, as PostgreSQL writes them in JSON."""

    root: models.Model
    team: int
    user: int | None
    rows: Mapping[type[models.Model], list[dict[str, Any]]]


_driven: dict[Hashable, list[Driven]] = {}


def make_finished_run(team: Team | None = None, user: User | None = None, **changes: Any) -> Run:
    """Create a run as `drive(make_run(team, user, **changes))` leaves it, see `copy_of`."""
    return make_driven_run(ROUNDS, team, user, **changes)


def make_driven_run(rounds: int, team: Team | None = None, user: User | None = None, **changes: Any) -> Run:
    """Create a run as `drive(make_run(team, user, **changes), rounds=rounds)` leaves it, see `copy_of`."""

    def make(team: Team, user: User | None) -> Iterator[Run]:
        yield drive(make_run(team, user, **changes), rounds=rounds)

    like = ("run", rounds, *sorted((name, repr(value)) for name, value in changes.items()))
    return Run.objects.get(pk=copy_of(like, make, team, user))


def copy_of(like: Hashable, make: Make, team: Team | None, user: User | None, stage: int = 0) -> int:
    """Insert the rows that `make` has made at a stage, and return the primary key of what it yields there.

    `like` tells different makers apart. `make` is called at the first copy in this process, so patch nothing before. A
    copy has the primary keys of what was made then, which was rolled back. The second copy of a test is one of what a
    second call made, and so on.
    """
    store_problems_and_targets()
    like = (like, user is not None, _problems())
    driven = next(one[stage] for one in _alike(like, make, user is not None) if not _is_there(one[stage].root))
    team = team or make_team()
    for kept in KEPT_BY_KEY:
        kept.cache_clear()
    with transaction.atomic():  # foreign keys are checked at its end, so tables come in any order
        for model, rows in driven.rows.items():
            _insert(model, [_given_to(row, model, driven, team, user) for row in rows])
    return int(driven.root.pk)


def _alike(like: Hashable, make: Make, has_user: bool) -> Iterator[list[Driven]]:
    """Yield the stages of what was made in this way, then those of further ones."""
    for number in count():
        if (number, like) not in _driven:
            _driven[number, like] = _make_and_roll_back(make, has_user)
        yield _driven[number, like]


def _problems() -> tuple[int, ...]:
    """Return the keys of the shipped problems' versions, which are others where a test stored the problems itself."""
    return tuple(
        ProblemVersion.objects.filter(problem__origin="shipped").values_list("pk", flat=True).order_by("pk")
    )


def _is_there(root: models.Model) -> bool:
    return type(root)._default_manager.filter(pk=root.pk).exists()


def _make_and_roll_back(make: Make, has_user: bool) -> list[Driven]:
    """Make something in a team of its own, read the rows at each stage and roll them back."""
    with rolled_back():
        team = make_team()
        user = make_user(team) if has_user else None
        last = {model: _last_key(model) for model in _tables()}
        driven = []
        for root in make(team, user):
            found = {model: _rows_after(model, key) for model, key in last.items()}
            rows = {model: rows for model, rows in found.items() if rows}
            driven.append(Driven(root, team.pk, user.pk if user else None, rows))
    return driven


def _tables() -> list[type[models.Model]]:
    """Return the models of the product, among them those between two others."""
    return [model for model in apps.get_models(include_auto_created=True) if model._meta.app_label == "optimizer"]


def _last_key(model: type[models.Model]) -> Any:
    return model._default_manager.order_by("-pk").values_list("pk", flat=True).first() or 0


def _rows_after(model: type[models.Model], key: Any) -> list[dict[str, Any]]:
    table, column = model._meta.db_table, model._meta.pk.column
    with connection.cursor() as cursor:
        cursor.execute(
            f'SELECT to_json(t)::text FROM "{table}" t WHERE "{column}" > %s ORDER BY "{column}"',  # noqa: S608
            [key],
        )
        return [json.loads(text) for (text,) in cursor.fetchall()]


def _given_to(
    row: dict[str, Any], model: type[models.Model], driven: Driven, team: Team, user: User | None
) -> dict[str, Any]:
    """Return a row that names this team and person instead of those of the run that was driven."""
    owners: dict[Any, tuple[int | None, Team | User | None]] = {
        Team: (driven.team, team),
        User: (driven.user, user),
    }
    changed = dict(row)
    for field in model._meta.concrete_fields:
        before, after = owners.get(field.related_model, (None, None))
        if after is not None and row[str(field.column)] == before:
            changed[str(field.column)] = after.pk
    if model is AuditEntry:  # it outlives teams and people, so it names them without foreign keys
        changed |= {"team_id": team.pk, "team_name": team.name}
        if user is not None and row["actor_id"] == driven.user:
            changed |= {"actor_id": user.pk, "actor_name": user.username}
    return changed


def _insert(model: type[models.Model], rows: list[dict[str, Any]]) -> None:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f'INSERT INTO "{table}" SELECT * FROM json_populate_recordset(NULL::"{table}", %s)'  # noqa: S608
            " ON CONFLICT DO NOTHING",
            [json.dumps(rows)],
        )
