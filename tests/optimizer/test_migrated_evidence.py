"""Test that evaluations stored by older versions learn whom they were compared with and whose outcome they share."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from optimizer.models import Evaluation, Kernel, KernelParent
from tests.driven_runs import make_finished_run
from tests.factories import make_kernel, make_run

pytestmark = pytest.mark.django_db
MIGRATION = import_module("optimizer.migrations.0016_opponents_and_copies")


def migrate() -> None:
    with connection.cursor() as cursor:
        for statement in (MIGRATION.OPPONENT, MIGRATION.SAME_BINARY, MIGRATION.SAME_SOURCE):
            cursor.execute(statement)


def evaluated(kernel: Kernel, **columns: object) -> Evaluation:
    return Evaluation.objects.create(
        kernel=kernel,
        target=kernel.run.target,
        first_of=kernel,
        effort="full",
        state="done",
        status="correct",
        **columns,
    )


def test_opponents_and_originals_are_filled_in_once() -> None:
    run = make_run()
    parent = make_kernel(run, "a")
    child, twin, same = make_kernel(run, "b", parent), make_kernel(run, "b"), make_kernel(run, "b // comment")
    Kernel.objects.filter(pk=twin.pk).update(meta={"twin_of": child.number})
    evaluated(parent)
    first = evaluated(child, parent_speedup=0.9)
    copies = [evaluated(twin), evaluated(same, result={"duplicate_of": str(first.pk)})]
    for _ in range(2):
        migrate()
    first.refresh_from_db()
    assert first.opponent == parent and first.copied_from is None
    assert [Evaluation.objects.get(pk=copy.pk).copied_from for copy in copies] == [first, first]
    assert Evaluation.objects.get(kernel=parent).opponent is None


def test_what_this_version_stores_needs_no_filling_in() -> None:
    run = make_finished_run()
    before = list(Evaluation.objects.order_by("pk").values_list("opponent", "copied_from"))
    migrate()
    after = list(Evaluation.objects.order_by("pk").values_list("opponent", "copied_from"))
    assert KernelParent.objects.filter(kernel__run=run).exists()
    assert after == before
