"""Jobs through KernelBot: nothing lost, nothing handed in twice, everything it may answer is data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from runners.dispatch.kernelbot import KernelBotDispatcher
from runners.job import Effort, JobResult, JobSpec, Language, Source, Status
from runners.job_source import Beat, Claim, Receipt, RunnerCard
from runners.kernelbot.account import Account, NotConfiguredError, account_from_environment
from runners.kernelbot.client import KernelBotClient, RefusedError
from runners.kernelbot.order import OrderError, read_order
from runners.kernelbot.visit import Pace, Visit
from runners.kernelbot.worker import work_at_kernelbot
from runners.problems import load
from tests.kernelbot_server import CLI_ID, PASSED, KernelBotServer, run, running_kernelbot

FAST = Pace(poll_s=0.01, settle_s=0.1, patience_s=1.0, afterwards_s=0.05, longest_pause_s=0.02)
TEXT = "def custom_kernel(a, b, a_scale, b_scale):\n    return a\n"


class FakeQueue:
    """Hold one job and what is kept with it."""

    def __init__(self, spec: JobSpec, **settings: Any) -> None:
        self.spec = spec
        self.settings = settings
        self.notes: dict[str, Any] = {}
        self.attempts = 0
        self.is_ours = True
        self.results: list[JobResult] = []
        self.lock = threading.Lock()
        self.waiting = True

    def claim(self, queue: str, worker: str) -> Claim | None:
        if not self.waiting:
            return None
        self.waiting = False
        return self.claimed()

    def claimed(self) -> Claim:
        return Claim(1, 1, self.spec, 60.0, 5.0, settings=dict(self.settings), notes=dict(self.notes))

    def note(self, claim: Claim, notes: dict[str, Any], attempts: int) -> bool:
        if self.is_ours:
            self.notes, self.attempts = dict(notes), attempts
        return self.is_ours

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        mine = self.lock.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self.lock.release()

    def beat(self, claim: Claim) -> Beat:
        return Beat.GO_ON

    def progress(self, claim: Claim, stage: str) -> None: ...

    def log(self, claim: Claim, seq: int, text: str) -> None: ...

    def finish(self, claim: Claim, result: JobResult) -> Receipt:
        self.results.append(result)
        return Receipt.RECORDED

    def let_go(self, claim: Claim) -> None: ...

    def detach(self) -> None: ...

    def check_in(self, card: RunnerCard) -> bool:
        return False


@pytest.fixture
def bot() -> Iterator[KernelBotServer]:
    with running_kernelbot() as server:
        yield server


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue(spec_of(TEXT))


def spec_of(text: str, language: Language = Language.PYTHON) -> JobSpec:
    return JobSpec("evaluation-1", load("fp8_block_gemm"), "gfx942", Source(language, text))


def visit(bot: KernelBotServer, queue: FakeQueue, **more: Any) -> JobResult:
    with KernelBotClient(Account(bot.url, CLI_ID)) as client:
        return Visit(client, queue, queue.claimed(), FAST).evaluate(queue.spec, **more)


def posts(bot: KernelBotServer) -> int:
    return sum(method == "POST" for method, _ in bot.requests)


def test_a_submission_goes_to_the_leaderboard_of_the_problem_and_comes_back_with_times(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    result = visit(bot, queue)
    assert (result.status, result.reasons) == (Status.CORRECT, [])
    assert [case.candidate_us for case in result.cases] == [8.0, 50.0]
    assert result.cases[0].candidate_low_us == pytest.approx(8.0 - 0.196)
    assert result.speedup is None and result.verdict is None
    assert ("POST", "/submission/amd-fp8-mm/MI300/benchmark") in bot.requests
    assert result.stages[0].seconds == 12.5


def test_the_number_is_noted_before_the_first_look(bot: KernelBotServer, queue: FakeQueue) -> None:
    def check_note(stage: str, text: str) -> None:
        if text.startswith("submission 1 is"):
            assert queue.notes["id"] == 1

    visit(bot, queue, on_progress=check_note)
    assert queue.notes["id"] == 1 and queue.attempts == 1


def test_a_fresh_worker_goes_on_polling_where_the_lost_one_was(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.accept("/submission/amd-fp8-mm/MI300/benchmark", "kernel_1.py", TEXT)
    queue.notes = {"file": "kernel_1.py", "sent": time.time(), "id": 1}
    assert visit(bot, queue).status == Status.CORRECT
    assert posts(bot) == 0


def test_a_worker_lost_between_sending_and_hearing_finds_its_submission_in_the_list(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.accept("/submission/amd-fp8-mm/MI300/benchmark", "kernel_1.py", TEXT)
    queue.notes = {"file": "kernel_1.py", "sent": time.time()}
    assert visit(bot, queue).status == Status.CORRECT
    assert posts(bot) == 0 and queue.notes["id"] == 1


def test_a_lost_reply_leads_to_the_list_and_not_to_a_second_submission(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.troubles = ["lost"]
    assert visit(bot, queue).status == Status.CORRECT
    assert len(bot.submissions) == 1


def test_a_submission_that_never_arrived_is_sent_again_after_the_list_says_so(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.troubles = [(502, "<html>bad gateway</html>")]
    assert visit(bot, queue).status == Status.CORRECT
    assert posts(bot) == 2 and len(bot.submissions) == 1
    between = [method for method, _ in bot.requests]
    assert "GET" in between[between.index("POST") + 1 : len(between) - between[::-1].index("POST") - 1]


def test_a_page_of_html_instead_of_an_answer_is_a_clear_error_and_no_crash(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.troubles = ["html"] * 9
    result = visit(bot, queue)
    assert result.status == Status.INFRA_ERROR
    assert "text/html" in result.reasons[0] and "Welcome" in result.reasons[0]


def test_html_while_polling_is_asked_again(bot: KernelBotServer, queue: FakeQueue) -> None:
    queue.notes = {"id": bot.accept("/submission/b/MI300/benchmark", "f.py", TEXT)["details"]["id"]}
    bot.get_troubles = [(200, "<html>"), (503, "<html>"), (500, '{"detail": "Error fetching submission"}')]
    assert visit(bot, queue).status == Status.CORRECT


def test_the_wait_that_a_rate_limit_names_is_honoured(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.troubles = [(429, "Rate limit exceeded: 3/1 test submissions per hour. Try again in 1s.")]
    started = time.monotonic()
    assert visit(bot, queue).status == Status.CORRECT
    assert time.monotonic() - started >= 1.0
    assert posts(bot) == 2


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (401, "Invalid X-Popcorn-Cli-Id"),
        (404, "no such leaderboard"),
        (400, "The deadline to submit has passed."),
        (422, "x"),
    ],
)
def test_a_refusal_that_is_not_the_kernels_doing_is_an_infrastructure_error(
    bot: KernelBotServer, queue: FakeQueue, code: int, detail: str
) -> None:
    bot.troubles = [(code, detail)]
    result = visit(bot, queue)
    assert result.status == Status.INFRA_ERROR
    assert str(code) in result.reasons[0] and detail in result.reasons[0]
    assert posts(bot) == 1


def test_a_refusal_of_the_source_is_a_rejection(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.troubles = [(400, "failed to prepare submission request: 413: Submission file is too large (limit: 1MB).")]
    assert visit(bot, queue).status == Status.REJECTED


@pytest.mark.parametrize("text", ["# a stream of thought\n" + TEXT, TEXT + "\nSTREAM = 1\n"])
def test_the_forbidden_word_is_refused_before_anything_is_sent(bot: KernelBotServer, text: str) -> None:
    result = visit(bot, FakeQueue(spec_of(text)))
    assert result.status == Status.REJECTED
    assert "line " in result.reasons[0]
    assert bot.requests == []


def test_a_source_over_a_megabyte_is_refused_before_anything_is_sent(bot: KernelBotServer) -> None:
    result = visit(bot, FakeQueue(spec_of(TEXT + "#" * 1_000_000)))
    assert result.status == Status.REJECTED and bot.requests == []


def test_a_test_that_fails_is_an_incorrect_kernel_although_the_job_succeeded(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    queue.settings = {"mode": "test"}
    wrong: dict[str, Any] = PASSED | {
        "check": "fail",
        "test.0.status": "fail",
        "test.0.error": "mismatch at (0, 1)",
    }
    bot.runs = [run("test", passed=False, **wrong)]
    result = visit(bot, queue)
    assert result.status == Status.INCORRECT
    assert result.reasons == ["test run: m: 64; seed: 1: mismatch at (0, 1)"]
    assert [(case.ok, case.error) for case in result.cases] == [(False, "mismatch at (0, 1)")]


def test_a_ranked_submission_needs_its_secret_run(bot: KernelBotServer, queue: FakeQueue) -> None:
    queue.settings = {"mode": "leaderboard"}
    result = visit(bot, queue)
    assert result.status == Status.CORRECT
    assert result.environment["kernelbot"]["scores_s"] == pytest.approx(
        {"leaderboard": 2e-05, "secret leaderboard": 2e-05}
    )
    assert [case.candidate_us for case in result.cases] == [8.0, 50.0]

    bot.runs = [run("test"), run("benchmark"), run("leaderboard"), run("leaderboard", secret=True, passed=False)]
    bot.ending, bot.error = "failed", "secret validation failed on MI300"
    queue.notes = {}
    result = visit(bot, queue)
    assert result.status == Status.INCORRECT and "secret leaderboard run" in result.reasons[0]


@pytest.mark.parametrize(
    ("ending", "runs", "status"),
    [
        ("hacked", [], Status.SUSPECT),
        ("timed_out", [], Status.INFRA_ERROR),
        ("timed_out", [run("benchmark", passed=False, x="y")], Status.TIMEOUT),
        ("failed", [], Status.INFRA_ERROR),
        ("failed", [run("benchmark", passed=False, x="y")], Status.CRASHED),
        ("succeeded", [], Status.INFRA_ERROR),
        ("succeeded", [run("test")], Status.INFRA_ERROR),
    ],
)
def test_every_ending_is_data(
    bot: KernelBotServer, queue: FakeQueue, ending: str, runs: list[Any], status: Status
) -> None:
    bot.ending, bot.runs, bot.error = ending, runs, "because"
    result = visit(bot, queue)
    assert result.status == status
    assert result.reasons


def test_figures_that_are_none_are_left_out(bot: KernelBotServer, queue: FakeQueue) -> None:
    odd: dict[str, Any] = {
        "check": "pass",
        "benchmark.0.spec": "m: 1",
        "benchmark.0.mean": "nan",
        "benchmark.1.mean": "-3",
    }
    bot.runs = [run("benchmark", **odd)]
    assert [case.candidate_us for case in visit(bot, queue).cases] == [None, None]


def test_after_a_failure_of_kernelbot_the_next_attempt_hands_in_anew(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.ending = "failed"
    bot.runs = []
    assert visit(bot, queue).status == Status.INFRA_ERROR
    assert queue.notes == {"earlier": [1]} and queue.attempts == 2

    bot.ending, bot.runs = "succeeded", None
    assert visit(bot, queue).status == Status.CORRECT
    assert len(bot.submissions) == 2


def test_a_submission_that_kernelbot_lost_is_given_up_and_the_next_attempt_hands_in_anew(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.polls_until_done = 10**9
    with KernelBotClient(Account(bot.url, CLI_ID)) as client:
        pace = replace(FAST, stale_s=0.2)
        result = Visit(client, queue, queue.claimed(), pace).evaluate(queue.spec)
    assert result.status == Status.INFRA_ERROR and "submission 1" in result.reasons[0]
    assert queue.notes == {"earlier": [1]} and queue.attempts == 2


def test_a_refused_submission_leaves_no_doubt_behind(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.troubles = [(404, "no such leaderboard")]
    visit(bot, queue)
    assert queue.notes["sent"] is None


def test_two_workers_of_one_account_never_have_two_submissions_under_way(bot: KernelBotServer) -> None:
    bot.polls_until_done = 5
    queues = [FakeQueue(spec_of(TEXT)) for _ in range(3)]
    for other in queues[1:]:
        other.lock = queues[0].lock
    with ThreadPoolExecutor(len(queues)) as workers:
        results = list(workers.map(lambda queue: visit(bot, queue), queues))
    assert [result.status for result in results] == [Status.CORRECT] * 3
    assert len(bot.submissions) == 3 and bot.most_under_way == 1


def test_a_submission_that_somebody_else_sent_under_our_account_is_waited_for(
    bot: KernelBotServer, queue: FakeQueue
) -> None:
    bot.accept("/submission/other/MI300/test", "by_hand.py", "x")
    threading.Timer(0.2, lambda: bot.submissions[0].update(done=True)).start()
    assert visit(bot, queue).status == Status.CORRECT
    assert bot.most_under_way == 1


def test_a_cancelled_job_leaves_at_once(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.polls_until_done = 10**9
    leave = threading.Event()
    threading.Timer(0.3, leave.set).start()
    started = time.monotonic()
    visit(bot, queue, cancel=leave.is_set)
    assert time.monotonic() - started < 3


def test_a_worker_that_lost_its_claim_sends_nothing(bot: KernelBotServer, queue: FakeQueue) -> None:
    queue.is_ours = False
    visit(bot, queue)
    assert posts(bot) == 0


def test_the_identity_is_in_no_message(bot: KernelBotServer, queue: FakeQueue) -> None:
    bot.troubles = [(400, f"header {CLI_ID} is odd")]
    result = visit(bot, queue)
    assert CLI_ID not in repr(result) and CLI_ID not in repr(queue.notes)
    assert CLI_ID not in repr(Account(bot.url, CLI_ID)) and CLI_ID not in Account(bot.url, CLI_ID).lock_name


def test_redirects_are_not_followed_with_the_identity(bot: KernelBotServer) -> None:
    bot.get_troubles = [(307, "<html>")]
    with KernelBotClient(Account(bot.url, CLI_ID)) as client, pytest.raises(Exception, match="307"):
        client.mine()


def test_an_unknown_submission_is_a_refusal(bot: KernelBotServer) -> None:
    with KernelBotClient(Account(bot.url, CLI_ID)) as client, pytest.raises(RefusedError, match="404"):
        client.submission(99)


def test_a_worker_takes_its_job_and_hands_in_the_result(
    bot: KernelBotServer, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPCORN_API_URL", f"{bot.url}/")
    monkeypatch.setenv("POPCORN_CLI_ID", CLI_ID)
    assert work_at_kernelbot(queue, "kernelbot.gfx942", "w", FAST)
    assert [result.status for result in queue.results] == [Status.CORRECT]
    assert not work_at_kernelbot(queue, "kernelbot.gfx942", "w", FAST)


@pytest.mark.parametrize(("url", "cli_id"), [("", "x"), ("http://h", ""), ("ftp://h", "x"), ("http://h", "ü")])
def test_without_an_account_nothing_is_claimed(
    url: str, cli_id: str, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPCORN_API_URL", url)
    monkeypatch.setenv("POPCORN_CLI_ID", cli_id)
    with pytest.raises(NotConfiguredError):
        work_at_kernelbot(queue, "kernelbot.gfx942", "w", FAST)
    assert queue.waiting
    with pytest.raises(NotConfiguredError):
        account_from_environment()


def test_orders_follow_problem_and_target_and_settings_override_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_order({}, target="gfx942", problem="fp8_block_gemm")
    assert (plain.leaderboard, plain.gpu, plain.mode) == ("amd-fp8-mm", "MI300", "benchmark")
    monkeypatch.setenv("KERNELBOT_LEADERBOARDS", "softmax_rows=rows-v2, x=y")
    assert read_order({"mode": "test"}, target="sm_90", problem="softmax_rows").leaderboard == "rows-v2"
    assert read_order({"gpu": "mi300"}, target="gfx942", problem="p").gpu == "mi300"


@pytest.mark.parametrize("settings", [{"mode": "rank"}, {"gpu": "../x"}, {"leaderboard": "a/b"}, {"speed": 1}])
def test_orders_that_go_nowhere_are_faults_of_the_run(settings: dict[str, Any]) -> None:
    assert KernelBotDispatcher().faults(settings)
    with pytest.raises(OrderError):
        read_order(settings, target="gfx942", problem="p")


def test_jobs_wait_on_a_queue_of_their_target() -> None:
    assert KernelBotDispatcher().queue_for("gfx942", Effort.FULL) == "kernelbot.gfx942"
    assert KernelBotDispatcher().faults({}) == []


def test_a_job_with_nowhere_to_go_says_so(bot: KernelBotServer, queue: FakeQueue) -> None:
    queue.spec = replace(queue.spec, target="cpu")
    result = visit(bot, queue)
    assert result.status == Status.INFRA_ERROR and "cpu" in result.reasons[0]
