"""Test that runs of a campaign that begin at the same moment measure a seed once."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from optimizer.campaigns.advance import advance_campaign
from optimizer.loop import advance, shared_seeds
from optimizer.models import AuthorKind, Evaluation, Kernel, Run
from tests.campaigns import make_campaign, make_suite


@pytest.mark.django_db(transaction=True)
def test_of_runs_that_begin_at_the_same_moment_one_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make_campaign(suite=make_suite(["softmax_rows"]), parallel_runs=4)
    advance_campaign(campaign.pk)
    looked, both = [], threading.Event()
    look = shared_seeds._measured_elsewhere

    def looking(run: Run, kernel: Kernel) -> Evaluation | None:
        """Look, and leave another run the time to look as well before this one has stored anything."""
        found = look(run, kernel)
        looked.append(run.pk)
        if len(set(looked)) > 1:
            both.set()
        both.wait(timeout=1.0)
        return found

    monkeypatch.setattr(shared_seeds, "_measured_elsewhere", looking)

    def begin(run_id: int) -> None:
        try:
            advance(run_id)
        finally:
            connection.close()

    runs = list(Run.objects.filter(campaign_cell__campaign=campaign).order_by("pk"))[:2]
    threads = [threading.Thread(target=begin, args=(run.pk,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seeds = Evaluation.objects.filter(kernel__author_kind=AuthorKind.SEED).order_by("kernel__number")
    first, second = (list(seeds.filter(first_of__run=run)) for run in runs)
    assert len(first) == len(second) > 0
    assert all(hasattr(one, "job") != hasattr(other, "job") for one, other in zip(first, second, strict=True))


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_frozen_in_its_turn_keeps_no_other_run_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make_campaign(suite=make_suite(["softmax_rows"]), parallel_runs=4)
    advance_campaign(campaign.pk)
    run = Run.objects.filter(campaign_cell__campaign=campaign).order_by("pk")[0]
    held, ended = threading.Event(), threading.Event()

    def freeze() -> None:
        try:
            with transaction.atomic():
                assert shared_seeds._begin_turn(campaign.pk, run.problem_version_id)
                held.set()
                ended.wait()
        finally:
            connection.close()

    frozen = threading.Thread(target=freeze)
    frozen.start()
    held.wait()
    monkeypatch.setattr(shared_seeds, "TURN_S", 0.1)
    advance(run.pk)
    ended.set()
    frozen.join()
    assert Evaluation.objects.filter(first_of__run=run, job__isnull=False).exists()
