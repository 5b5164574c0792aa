"""Generate a settled campaign of any size, for measuring its pages. Nobody measured its figures."""

from __future__ import annotations

import random
from itertools import product

from django.utils import timezone

from optimizer.models import (
    Campaign,
    CampaignCell,
    CampaignConfiguration,
    CampaignTiming,
    Evaluation,
    Kernel,
    Problem,
    ProblemVersion,
    Run,
    Suite,
    SuiteEntry,
    Target,
    Team,
)
from optimizer.synthetic.rows import MARK

BASELINE = "torch_eager"
BATCH = 1000


def make_settled_campaign(team: Team, problems: int, configurations: int, seeds: int, seed: int = 0) -> Campaign:
    """Store a campaign in which every run has a winner with one settled timing. Needs the shipped problems."""
    rng, now = random.Random(seed), timezone.now()  # noqa: S311 - made-up figures, not cryptography
    suite, versions = _suite(problems)
    target = Target.objects.get(key="cpu")
    campaign = Campaign.objects.create(
        team=team, title=f"{MARK} campaign", suite=suite, target=target, baselines=[BASELINE], state="finished",
        settling_at=now, finished_at=now,
    )  # fmt: skip
    compared = [
        CampaignConfiguration.objects.create(
            campaign=campaign, position=n, name=f"configuration {n}", strategy="tune"
        )
        for n in range(configurations)
    ]
    places = list(product(versions, compared, range(seeds)))
    runs = Run.objects.bulk_create(
        (
            Run(team=team, title=f"{MARK} cell {n}", problem_version=version, target=target, strategy="tune",
                state="finished", seed=number, best_speedup=1.0, spent_evaluations=30, spent_tokens=90_000,
                spent_device_s=rng.uniform(60, 240), started_at=now, finished_at=now)
            for n, (version, _, number) in enumerate(places)
        ),
        batch_size=BATCH,
    )  # fmt: skip
    kernels = Kernel.objects.bulk_create(
        (
            Kernel(run=run, number=1, key="synthetic.1", author_kind="tuner", language="cpp", source="// none\n",
                   content_hash=f"{run.pk:064x}")
            for run in runs
        ),
        batch_size=BATCH,
    )  # fmt: skip
    speedups = [rng.lognormvariate(0.1 + 0.15 * compared.index(one), 0.5) for _, one, _ in places]
    evaluations = Evaluation.objects.bulk_create(
        (
            Evaluation(kernel=kernel, target=target, effort="confirm", purpose="settling", state="done",
                       status="correct", verdict="same", time_us=100 / speedup, speedup=speedup,
                       speedup_low=speedup * 0.98, speedup_high=speedup * 1.02, roofline_share=0.4, device_s=3.0)
            for kernel, speedup in zip(kernels, speedups, strict=True)
        ),
        batch_size=BATCH,
    )  # fmt: skip
    cells = CampaignCell.objects.bulk_create(
        (
            CampaignCell(campaign=campaign, configuration=one, problem_version=version, name=version.problem.title,
                         seed=number, order=n, run=runs[n], is_closed=True, steps=_steps(rng, speedups[n]))
            for n, (version, one, number) in enumerate(places)
        ),
        batch_size=BATCH,
    )  # fmt: skip
    CampaignTiming.objects.bulk_create(
        (
            CampaignTiming(campaign=campaign, cell=cell, kernel=kernels[n], baseline=BASELINE, order=n,
                           evaluation=evaluations[n])
            for n, cell in enumerate(cells)
        ),
        batch_size=BATCH,
    )  # fmt: skip
    return campaign


def _suite(problems: int) -> tuple[Suite, list[ProblemVersion]]:
    model = ProblemVersion.objects.filter(problem__origin="shipped").earliest("pk")
    number = Suite.objects.filter(slug="synthetic").count() + 1
    suite = Suite.objects.create(slug="synthetic", number=number, title=MARK, content_hash=f"{number}")
    rows = Problem.objects.bulk_create(
        Problem(slug=f"synthetic-{number}-{n}", title=f"level1/{n}_synthetic", origin=MARK)
        for n in range(1, problems + 1)
    )
    versions = ProblemVersion.objects.bulk_create(
        ProblemVersion(problem=row, number=1, content_hash="0" * 64, bundle=model.bundle, languages=["cpp"])
        for row in rows
    )
    SuiteEntry.objects.bulk_create(
        SuiteEntry(suite=suite, position=n, name=version.problem.title, problem_version=version)
        for n, version in enumerate(versions)
    )
    return suite, versions


def _steps(rng: random.Random, best: float) -> list[dict[str, float]]:
    """Return a few improvements that end at the best."""
    places = sorted(rng.sample(range(1, 31), 4))
    return [
        {"speedup": best * share, "evaluations": at, "tokens": 3000 * at, "usd": 0.01 * at, "device_s": 5.0 * at,
         "minutes": 0.3 * at}
        for at, share in zip(places, (0.4, 0.7, 0.9, 1.0), strict=True)
    ]  # fmt: skip
