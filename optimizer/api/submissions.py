"""Take kernels from whoever optimises outside, say what became of them, and sign it."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_kernel, access_run
from optimizer.actions.submission import (
    MAX_FLAGS,
    MAX_KEY,
    MAX_PARENTS,
    MAX_REPORT,
    MAX_TITLE,
    Submission,
    do_finish_run,
    do_measure,
    do_submit,
)
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.runs import RunOut, run_out
from optimizer.knowledge import search_knowledge
from optimizer.models import EvaluationState, Kernel, Problem, Target, TokenScope
from optimizer.queries.receipts import installation_public_key, signed_receipt
from optimizer.runs.history import problem_of
from runners.job import Language, Limits, Source
from runners.problems import open_bundle
from runners.targets import TARGETS
from runners.verbs.describing import describe, hidden_cases
from runners.verbs.verdicts import verdict_of
from runners.verbs.workbook import Expected, Reported

router = Router(tags=["submissions"], auth=needs(TokenScope.READ))
SUBMIT = needs(TokenScope.RUNS)


class ExpectedIn(Body):
    """Hold what the author expects of the change; gains are in per cent of speed."""

    title: str = Field(min_length=1, max_length=300)
    description: str = Field(default="", max_length=MAX_REPORT)
    predicted_min: float | None = Field(default=None, allow_inf_nan=False)
    predicted_max: float | None = Field(default=None, allow_inf_nan=False)


class ReportedIn(Body):
    """Hold the author's own measurement: the geometric mean of the medians over the timed cases in µs, and where."""

    time_us: float = Field(gt=0, allow_inf_nan=False)
    speedup: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    device: str = Field(default="", max_length=200)
    how: str = Field(default="", max_length=400)


class SubmissionIn(Body):
    """Describe a kernel from outside.

    `key` is the author's own name for it: sent again with the same source, it is the same kernel. With `measure` off it
    is kept as reported, and measured when somebody asks or before the run ends, if its claim would lead.
    """

    source: str = Field(max_length=Limits().source_bytes)
    language: Language
    key: str = Field(default="", max_length=MAX_KEY)
    title: str = Field(default="", max_length=MAX_TITLE)
    report: str = Field(default="", max_length=MAX_REPORT)
    parents: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(default=[], max_length=MAX_PARENTS)
    hypothesis: ExpectedIn | None = None
    tunables: dict[str, int | float | str | bool] = {}
    flags: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=MAX_FLAGS)
    reported: ReportedIn | None = None
    measure: bool = True


class VerdictOut(Schema):
    """Describe what became of a kernel.

    `state` is `queued`, `running`, `done`, `cancelled`, or `reported` for a kernel that nobody has measured here;
    `reported` holds its author's own figures. `verdict` is the harness's, without samples, empty before it is done.
    """

    run: int
    kernel: int
    title: str
    state: str
    stage: str
    leads: bool
    reported: dict[str, Any] | None
    verdict: dict[str, Any]


class BestOut(VerdictOut):
    """Describe the best kernel with its source."""

    language: str
    source: str


class FinishIn(Body):
    """Say why the run is finished."""

    reason: str = Field(default="", max_length=200)


class PageOut(Schema):
    """Hold a page on hardware or a technique, with its tested snippet."""

    name: str
    title: str
    targets: list[str]
    text: str


class KeyOut(Schema):
    """Hold the public key with which this installation signs, in hexadecimal (Ed25519)."""

    public_key: str


@router.post(
    "/runs/{int:run_id}/submissions", response={201: VerdictOut, 200: VerdictOut, 422: Refusal}, auth=SUBMIT
)
def submit_kernel(request: HttpRequest, run_id: int, body: SubmissionIn) -> Any:
    """Submit a kernel to a run of the strategy `external`. 200 where the key was sent before with the same source."""
    run = access_run(caller(request), run_id, "operate")
    # The same key with the same source is the same kernel, so that a client may repeat a lost request.
    kernel, is_new = do_submit(caller(request), run, _submission(body))
    return Status(201 if is_new else 200, _verdict(access_kernel(caller(request), run_id, kernel.number, "view")))


@router.get("/runs/{int:run_id}/kernels/{int:number}/verdict", response=VerdictOut)
def read_verdict(request: HttpRequest, run_id: int, number: int) -> Any:
    """Return what became of a kernel, in short."""
    return _verdict(access_kernel(caller(request), run_id, number, "view"))


@router.post(
    "/runs/{int:run_id}/kernels/{int:number}/measure", response={200: VerdictOut, 422: Refusal}, auth=SUBMIT
)
def measure_kernel(request: HttpRequest, run_id: int, number: int) -> Any:
    """Measure a kernel that was only reported."""
    do_measure(caller(request), access_kernel(caller(request), run_id, number, "operate"))
    return _verdict(access_kernel(caller(request), run_id, number, "view"))


@router.get("/runs/{int:run_id}/best", response=BestOut)
def read_best(request: HttpRequest, run_id: int) -> Any:
    """Return the kernel that leads the run, with its source. 404 while none does."""
    run = access_run(caller(request), run_id, "view")
    if run.best_kernel is None:
        raise Http404("No kernel leads this run yet.")
    kernel = access_kernel(caller(request), run_id, run.best_kernel.number, "view")
    return _verdict(kernel) | {"language": kernel.language, "source": kernel.source}


@router.post("/runs/{int:run_id}/finish", response={200: RunOut, 409: Refusal}, auth=SUBMIT)
def finish_run(request: HttpRequest, run_id: int, body: FinishIn) -> Any:
    """Let the run finish: what leads is measured again in cold processes, and the run ends."""
    return run_out(do_finish_run(caller(request), access_run(caller(request), run_id, "operate"), body.reason))


@router.get("/runs/{int:run_id}/kernels/{int:number}/receipt", response={422: Refusal})
def read_receipt(request: HttpRequest, run_id: int, number: int, files: bool = True) -> HttpResponse:
    """Return the kernel's newest verdict, signed by this installation. Check it with `python -m runners verify`."""
    kernel = access_kernel(caller(request), run_id, number, "view")
    response = HttpResponse(signed_receipt(kernel, with_files=files), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="receipt-{run_id}-{number}.json"'
    return response


@router.get("/receipt-key", response=KeyOut)
def read_receipt_key(request: HttpRequest) -> Any:
    """Return the key with which receipts of this installation are checked."""
    return {"public_key": installation_public_key()}


@router.get("/problems/{slug}/task", response=dict[str, Any])
def read_task(request: HttpRequest, slug: str, target: str = "cpu") -> Any:
    """Return what a kernel has to compute on a target, how it is judged, the reference and the seeds."""
    problem = Problem.objects.visible_to(caller(request)).filter(slug=slug).first()
    if problem is None or target not in TARGETS or not Target.objects.filter(key=target).exists():
        raise Http404("There is no such problem or target.")
    return describe(open_bundle(problem.latest().as_bundle()), TARGETS[target])


@router.get("/knowledge/pages", response=list[PageOut])
def search_pages(
    request: HttpRequest,
    q: Annotated[str, Query(min_length=1, max_length=400)],
    target: Annotated[str, Query(max_length=40)] = "",
    limit: Annotated[int, Query(ge=1, le=10)] = 5,
) -> Any:
    """Search the shipped pages on hardware and techniques."""
    found = search_knowledge(q, target, limit)
    return [{"name": one.name, "title": one.title, "targets": one.targets, "text": one.markdown} for one in found]


def _submission(body: SubmissionIn) -> Submission:
    expected, said = body.hypothesis, body.reported
    return Submission(
        Source(body.language, body.source, dict(body.tunables), tuple(body.flags)),
        key=body.key,
        title=body.title,
        report=body.report,
        parents=tuple(body.parents),
        hypothesis=Expected(**expected.model_dump()) if expected else None,
        reported=Reported(**said.model_dump()) if said else None,
        measure=body.measure,
    )


def _verdict(kernel: Kernel) -> dict[str, Any]:
    evaluation = getattr(kernel, "evaluation", None)
    result = evaluation.as_readable_result() if evaluation else None
    return {
        "run": kernel.run_id,
        "kernel": kernel.number,
        "title": kernel.title,
        "state": evaluation.state if evaluation else EvaluationState.QUEUED,
        "stage": evaluation.stage if evaluation else "",
        "leads": kernel.run.best_kernel_id == kernel.pk,
        "reported": kernel.meta.get("reported"),
        "verdict": verdict_of(result, hidden_cases(problem_of(kernel.run), kernel.run.target.key))
        if result
        else {},
    }
