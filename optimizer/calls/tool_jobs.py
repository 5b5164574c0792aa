"""Turn a tool call into a job on a queue."""

from __future__ import annotations

from optimizer.models import EvaluationStatus, Job, Kernel, LlmCall, Run, ToolCall
from optimizer.runs.dispatch import store_job
from optimizer.tools.catalogue import Tool
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import BUILD_QUEUE, CeleryDispatcher
from runners.job import Baseline, Effort, JobSpec, Language, Limits, Objective, Source

CPU = "cpu"
# A tool's job is short: a kernel that needs longer is not worth waiting for in the middle of a question.
LIMIT_S = 180.0
# Triton's interpreter may take minutes for a check and a build takes seconds, so waiting builds go first. This exceeds
# the priorities that campaigns give to runs.
AFTER_BUILDS = 1000


def queue_tool_job(
    run: Run, call: LlmCall, tool_call: ToolCall, tool: Tool, opponent: ToolCall | None = None
) -> Job:
    """Create the job of a tool call and notify the runners after commit. Call under the run's lock.

    Timing is paired with the kernel of the earlier tool call `opponent`, or with the one that is to be changed.

    What needs no device is done by this installation's own workers. On a CPU target everything waits for its turn on
    the target's queue, so that a compiler does not disturb a measurement on the same processor.
    """
    effort = tool.effort or Effort.BUILD
    here = effort == Effort.BUILD or tool.interpreted
    dispatcher = CeleryDispatcher.name if here else run.dispatcher
    on_build = here and run.target.key != CPU
    job = Job(
        queue=BUILD_QUEUE if on_build else DISPATCHERS[dispatcher].queue_for(run.target.key, Effort.FULL),
        dispatcher=dispatcher,
        priority=run.priority + (AFTER_BUILDS if on_build and tool.interpreted else 0),
    )
    return store_job(job, _tool_spec(run, call, tool_call, tool, opponent), run.problem_version_id)


def _tool_spec(run: Run, call: LlmCall, tool_call: ToolCall, tool: Tool, opponent: ToolCall | None) -> JobSpec:
    return JobSpec(
        job_id=f"tool-{tool_call.pk}",
        problem=run.problem_version.as_bundle(),
        target=CPU if tool.interpreted else run.target.key,
        candidate=_source_of(tool_call),
        effort=tool.effort or Effort.BUILD,
        baseline=Baseline(run.baseline),
        parent=_source_of(opponent) if opponent else _base_of(run, call, tool),
        limits=Limits(total_s=LIMIT_S),
        profile=tool.profile,
        objective=Objective(run.objective),
        # A kernel that is written for the shown shapes alone must not learn the others from its failures.
        hidden_cases=False,
        for_target=run.target.key if tool.interpreted else "",
    )


def _source_of(tool_call: ToolCall) -> Source:
    return Source(Language(tool_call.language), tool_call.source)


def _base_of(run: Run, call: LlmCall, tool: Tool) -> Source | None:
    """Return the kernel that the question is to improve, or None where it fails and cannot be timed alongside."""
    if tool.effort != Effort.QUICK:
        return None
    base = working_base_of(run, call)
    return base.as_source() if base else None


def working_base_of(run: Run, call: LlmCall) -> Kernel | None:
    """Return the kernel that a question is to improve, None where it has none that works."""
    named = [str(call.context[name]) for name in ("base", "node") if name in call.context]
    return run.kernels.filter(key__in=named, evaluation__status=EvaluationStatus.CORRECT).first()
