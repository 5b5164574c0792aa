"""Test what else two kernels differ in than their source: generated assembly, parameters, compiler flags."""

from __future__ import annotations

import pytest
from django.urls import reverse

from optimizer.models import Evaluation, EvaluationState, Kernel, Run
from runners import wire
from runners.job import BuildReport, JobResult, Status
from tests.factories import BASE, make_kernel, make_run, make_user
from tests.optimizer.clients import flowing, signed_in

pytestmark = pytest.mark.django_db
LISTINGS = {"x86": "vmovaps", "amdgcn": "v_mfma_f32_32x32x8_f16", "ptx": "ld.global.f32", "sass": "HMMA.16816"}


@pytest.fixture
def run() -> Run:
    return make_run()


def built(kernel: Kernel, assembly: dict[str, str]) -> Kernel:
    """Return the kernel as its build left it."""
    result = JobResult("1", Status.CORRECT, build=BuildReport(True, 1.0, False, "", assembly=assembly))
    outcome = {"state": EvaluationState.DONE, "status": "correct", "result": wire.to_plain(result)}
    Evaluation.objects.create(kernel=kernel, target=kernel.run.target, first_of=kernel, **outcome)
    return kernel


def page(kernel: Kernel, query: str = "") -> str:
    client = signed_in(make_user(kernel.run.team))
    answer = client.get(reverse("diff_page", args=[kernel.run_id, kernel.number]) + query)
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.mark.parametrize("kind", LISTINGS)
def test_generated_assembly_is_compared_where_both_builds_left_it(run: Run, kind: str) -> None:
    old = built(make_kernel(run, BASE), {kind: f"start:\n  {LISTINGS[kind]} r0, r1\n  end\n"})
    new = built(make_kernel(run, BASE + "int x;\n", old), {kind: f"start:\n  {LISTINGS[kind]} r0, r2\n  end\n"})
    assert f"text={kind}" in page(new)
    text = page(new, f"?text={kind}").replace("<mark>", "").replace("</mark>", "")
    assert "r2" in text and "<b>+1</b> <b>−1</b> lines" in text
    assert "float line_50" not in text


def test_a_listing_that_one_build_did_not_leave_is_named(run: Run) -> None:
    old = built(make_kernel(run, BASE), {})
    new = built(make_kernel(run, BASE, old), {"x86": "ret\n"})
    assert f"Kernel #{old.number} has no such listing" in page(new, "?text=x86")


def test_parameters_that_differ_stand_beside_a_source_that_does_not(run: Run) -> None:
    old = make_kernel(run, BASE)
    new = make_kernel(run, BASE, old)
    Kernel.objects.filter(pk=new.pk).update(tunables={"TILE": 64}, flags=["-O3"])
    text = page(new)
    assert "No line differs; parameters do." in flowing(text)
    assert "<code>TILE</code>" in text and ">64<" in text and ">-O3<" in text
