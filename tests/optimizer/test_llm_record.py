"""Test records: a run's answers leave without people's words, come in only if sound, and play again."""

from __future__ import annotations

import gzip
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.record import do_import_record
from optimizer.calls.prepare import knowledge_of
from optimizer.calls.record import SHIPPED, Stripper, load_record, record_of, shipped
from optimizer.calls.worker import answer
from optimizer.llm.port import CompletionRequest, ProviderRefusedError
from optimizer.llm.recording import RecordError, RunRecord, from_bytes, prompt_hash, to_bytes
from optimizer.llm.replay import Replay
from optimizer.loop.steps import take_steps
from optimizer.models import CallState, LlmCall, Problem, Record, Run, Team, TeamRole, User
from optimizer.queries.budgets import Budget
from optimizer.runs.locking import lock_run
from optimizer.search.base import Ask, Note
from tests.factories import drive, make_provider, make_run, make_team, make_user
from tests.llm_server import KEY, LlmServer, Reply, llm_server
from tests.rollback import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
ANSWERS = 3


def played(run: Run, rounds: int = 20) -> Run:
    """Drive the run, answering what it asks, until it rests."""
    for _ in range(rounds):
        drive(run, rounds=4)
        for pk in LlmCall.objects.filter(run=run, state=CallState.QUEUED).values_list("pk", flat=True):
            answer(pk)
        run.refresh_from_db()
        if run.state_choice.is_terminal:
            break
    return run


def finished_run(server: LlmServer, texts: list[str], **changes: Any) -> Run:
    """Return a run of one evaluation per answer, asked of the test server."""
    team = make_team()
    make_provider(server, team)
    server.script(*[Reply(text=text, piece=1000) for text in texts])
    start: dict[str, Any] = {
        "strategy": "sampling",
        "providers": {"default": {"provider": "tiny"}},
        "budget": Budget(evaluations=ANSWERS),
    }
    return played(make_run(team, make_user(team), **(start | changes)))


def kernels(count: int = ANSWERS) -> list[str]:
    """Return answers whose kernels differ in more than a comment, or the novelty check would have them asked again."""
    return [f"Title: kernel {number}\n```cpp\nint kernel_{number} = {number};\n```" for number in range(count)]


def titles(run: Run) -> list[str]:
    return list(run.kernels.filter(author_kind="agent").order_by("number").values_list("title", flat=True))


@pytest.fixture(scope="module")
def record(module_rows: None) -> RunRecord:
    """Record a run of three answers once for the module, and leave no rows behind."""
    return recorded(ANSWERS)


@pytest.fixture(scope="module")
def short_record(module_rows: None) -> RunRecord:
    """Record a run of one answer once for the module, and leave no rows behind."""
    return recorded(1)


def recorded(answers: int) -> RunRecord:
    with rolled_back(), llm_server() as server:
        return record_of(finished_run(server, kernels(answers), budget=Budget(evaluations=answers)))


def test_a_recorded_run_plays_again_without_a_model_and_says_that_it_is_recorded(server: LlmServer) -> None:
    run = finished_run(server, kernels())
    asked = len(server.asked)
    team = make_team()
    do_import_record(make_user(team), team, "softmax-sampling", to_bytes(record_of(run, "Softmax")))
    choice = {"default": {"provider": "replay", "record": "softmax-sampling"}}
    again = played(make_run(team, strategy="sampling", providers=choice, budget=Budget(evaluations=ANSWERS)))
    assert titles(again) == titles(run) == ["kernel 0", "kernel 1", "kernel 2"]
    assert len(server.asked) == asked and again.spent_tokens == 0 and again.spent_usd == 0
    assert all(call.transport["recorded"] and call.cost_usd == 0 for call in LlmCall.objects.filter(run=again))
    assert again.kernels.filter(author_kind="agent", evaluation__state="done").count() == ANSWERS, "timed here"


def test_the_name_of_a_recording_may_hold_the_problem(record: RunRecord) -> None:
    """One configuration of a campaign names one recording, and has runs on many problems."""
    team = make_team()
    do_import_record(make_user(team), team, "mine-softmax_rows", to_bytes(record))
    choice = {"default": {"provider": "replay", "record": "mine-{problem}"}}
    again = played(make_run(team, strategy="sampling", providers=choice, budget=Budget(evaluations=ANSWERS)))
    assert titles(again) == ["kernel 0", "kernel 1", "kernel 2"]
    other = Problem.objects.get(slug="layernorm_residual").latest()
    without = played(make_run(team, strategy="sampling", problem_version=other, providers=choice))
    assert "there is no record called mine-layernorm_residual" in LlmCall.objects.filter(run=without)[0].error


@pytest.mark.parametrize(
    "name", ["stark-layernorm_residual", pytest.param("scientist-softmax_rows", marks=pytest.mark.long)]
)
def test_a_shipped_recording_is_replayed_on_its_own_lineage_and_says_that_prompts_differ(
    name: str, client: Client
) -> None:
    record = from_bytes((SHIPPED / f"{name}.json.gz").read_bytes())
    do_sync_shipped_problems()
    team = make_team()
    run = played(
        make_run(
            team, make_user(team), strategy=record.strategy, settings=record.settings, seed=record.seed,
            problem_version=Problem.objects.get(slug=record.problem).latest(),
            providers={"default": {"provider": "replay", "record": name}},
            budget=Budget(evaluations=record.evaluations),
        )
    )  # fmt: skip
    agents = {kernel.key: kernel for kernel in run.kernels.filter(author_kind="agent")}
    assert len(agents) == record.evaluations
    contexts = {call.key: call.context for call in record.calls if call.context}
    for key, kernel in agents.items():
        question = contexts.get(key.replace(".k", ".w")) or contexts[f"{key}.plan"]
        bases = [question[one] for one in ("base", "node") if one in question]
        assert list(kernel.parent_links.filter(rank=0).values_list("parent__key", flat=True)) == bases
    notes = run.events.filter(type="run.note").values_list("payload__text", flat=True)
    assert any("recorded answers belong to prompts that differ" in note for note in notes)
    call = LlmCall.objects.filter(run=run, transport__same_prompt=False).first()
    assert call is not None and run.created_by is not None
    client.force_login(run.created_by)
    assert (
        "recorded for a slightly different prompt"
        in client.get(f"/runs/{run.pk}/calls/{call.pk}/").content.decode()
    )


def test_the_same_prompt_is_recognised_whatever_its_mark() -> None:
    def messages(mark: str, words: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"<<<BEGIN DATA {mark} log>>>\n{words}\n<<<END DATA {mark}>>>"}]

    one, other = messages("0123456789abcdef", "x"), messages("fedcba9876543210", "x")
    assert prompt_hash(one) == prompt_hash(other) != prompt_hash(messages("0123456789abcdef", "y"))


def test_a_replay_ends_where_its_recording_ends(record: RunRecord) -> None:
    team = make_team()
    short = record.model_copy(update={"calls": record.calls[:1]})
    do_import_record(make_user(team), team, "short", to_bytes(short))
    choice = {"default": {"provider": "replay", "record": "short"}}
    again = played(make_run(team, strategy="sampling", providers=choice, budget=Budget(evaluations=ANSWERS)))
    assert titles(again) == ["kernel 0"] and again.state_choice.is_terminal
    assert again.stop_reason == "every attempt of the recording was made"
    assert not LlmCall.objects.filter(run=again, state=CallState.FAILED).exists()


def test_a_question_that_the_record_does_not_know_is_refused(record: RunRecord) -> None:
    asked = CompletionRequest(messages=[], key="a99.solo", role="solo")
    with pytest.raises(ProviderRefusedError, match=r"no answer to a99\.solo"):
        Replay(record).complete(asked, on_token=lambda text: None, cancelled=lambda: False)


def test_nothing_private_leaves_with_a_record(server: LlmServer) -> None:
    """Put canaries in every place where people write, and in the answers that quote them."""
    texts = [
        f"Title: t{n}\nAs Ada Canaryname (ada@canary.example, canaryada) says: use the canary guidance of the team. "
        f"Key {KEY}. "
        f"Or ask stranger@canary.test, key sk-proj-canary0123456789abcdef.\n"
        f"```cpp\n// for ada@canary.example by Ada Canaryname {n}\nint canaryada;\nint kernel_{n};\n```"
        for n in range(ANSWERS)
    ]
    ada = User(username="canaryada", first_name="Ada", last_name="Canaryname", email="ada@canary.example")
    ada.save()
    team = make_team()
    team.memberships.create(user=ada, role=TeamRole.OPERATOR)
    make_provider(server, team)
    server.script(*[Reply(text=text, piece=1000) for text in texts])
    run = make_run(
        team,
        ada,
        strategy="sampling",
        providers={"default": {"provider": "tiny"}},
        title="canary title of the run",
        guidance="use the canary guidance of the team",
        budget=Budget(evaluations=ANSWERS),
    )
    played(run)
    assert "canary guidance" in json.dumps(LlmCall.objects.filter(run=run)[0].messages), "the canary was planted"
    plain = gzip.decompress(to_bytes(record_of(run, "by canaryada"))).decode()
    for canary in (
        "Canaryname",
        "canary.example",
        "canary guidance",
        "canary title",
        "canary.test",
        "sk-proj",
        KEY,
        "says: canaryada",
    ):
        assert canary not in plain
    assert "int canaryada;" in plain, "an identifier in code stays"
    assert (
        "messages" not in json.loads(plain)["calls"][0]
        and len(json.loads(plain)["calls"][0]["prompt_sha256"]) == 64
    )


def test_account_names_go_from_prose_and_stay_in_code() -> None:
    strip = Stripper([], ["warp", "al"])
    assert strip.prose("warp said\n```cpp\nint warp;\n```\nto warp, al") == (
        "[removed] said\n```cpp\nint warp;\n```\nto [removed], al"
    )


def test_a_run_called_like_an_identifier_keeps_its_code() -> None:
    strip = Stripper(["softmax", "float"], [])
    code = "```cpp\nfloat softmax(float x);\n```"
    edits = "<<<<<<< SEARCH\nfloat x;\n=======\nfloat softmax;\n>>>>>>> REPLACE"
    assert strip.prose(f"softmax\n{code}\n{edits}\nfloat") == f"[removed]\n{code}\n{edits}\n[removed]"


@pytest.mark.parametrize(
    "quoted", ['use  the "größte"\ntile', r"Use the \"größte\" tile", r"use\nthe \"gr\u00f6\u00dfte\" tile"]
)
def test_the_teams_words_go_however_they_are_wrapped_and_quoted(quoted: str) -> None:
    assert Stripper(['use the "größte" tile'], []).everywhere(f"I {quoted}.") == "I [removed]."


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-canary0123456789",
        "AIzaSyD4xT0123456789abcdefghijklmnopqr",
        "hf_canary0123456789abcdefghijklmnop",
        "github_pat_11CANARY0123456789abcdef",
        "xoxb-123456789012-canarycanary",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_anything_shaped_like_a_key_goes(key: str) -> None:
    assert Stripper([], []).everywhere(f"x={key};") == "x=[removed];"


def test_long_identifiers_are_no_keys_and_a_servers_own_key_goes_whatever_its_shape() -> None:
    strip = Stripper([], [], ["letmein"])
    assert strip.everywhere("ks_offset_of_the_first_tile letmein") == "ks_offset_of_the_first_tile [removed]"


def test_settings_keep_their_names_whatever_people_wrote() -> None:
    strip = Stripper(["a secret model", "epsilon", "false"], [])
    settings = {"epsilon": 0.3, "confirm": False, "models": ["a secret model"], "tune": {"evaluations": 5}}
    assert strip.values(settings) == settings | {"models": ["[removed]"]}


def test_what_people_wrote_into_the_findings_is_private_and_what_agents_wrote_is_not(team: Team) -> None:
    run = make_run(team)
    run.findings.create(team=team, text="Stores are slow here.", origin="agent")
    run.findings.create(team=team, text="Stores are slow here.\nAda's board is loose.", origin="person")
    strip = Stripper.of(run)
    assert strip.prose("Stores are slow here. Ada's board is loose.") == "Stores are slow here. [removed]"


def test_a_longer_run_is_recorded_with_as_many_queries(server: LlmServer) -> None:
    short = finished_run(server, kernels(1), budget=Budget(evaluations=1))
    long = finished_run(server, kernels(2), budget=Budget(evaluations=2))
    taken = []
    for run in (short, long):
        with CaptureQueriesContext(connection) as queries:
            record_of(run)
        taken.append(len(queries))
    assert short.calls.count() < long.calls.count() and taken[0] == taken[1]


def test_a_record_survives_its_file_and_is_the_same_bytes_twice(record: RunRecord) -> None:
    assert from_bytes(to_bytes(record)) == record and to_bytes(record) == to_bytes(record)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "file"),
        (b"{}", "problem"),
        (b"\x1f\x8bnot gzip", "not a record"),
        (b'{"format": 3}', "format"),
        (gzip.compress(b"[" * 100_000), "file"),
    ],
)
def test_a_file_that_is_no_record_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        from_bytes(data)


def test_a_record_that_unpacks_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.llm.recording.MAX_RECORD_BYTES", 1_000_000)
    with pytest.raises(RecordError, match="larger"):
        from_bytes(gzip.compress(b" " * 50_000_000))


def test_a_field_that_nobody_knows_is_refused(short_record: RunRecord) -> None:
    plain = short_record.model_dump(mode="json")
    plain["calls"][0]["tolerance"] = 1
    with pytest.raises(RecordError, match="tolerance"):
        from_bytes(json.dumps(plain).encode())


def test_every_shipped_record_is_sound() -> None:
    for name in shipped():
        record = load_record(make_team(), name)
        assert record.calls and record.problem and (SHIPPED / f"{name}.json.gz").stat().st_size < 5_000_000


def test_records_go_out_and_in_by_command(server: LlmServer, tmp_path: Path) -> None:
    run = finished_run(server, kernels())
    file = tmp_path / "record.json.gz"
    assert "3 calls" in ran("record", "export", str(run.pk), str(file))
    User.objects.create_superuser("root")
    team = make_team()
    assert "3 calls" in ran("record", "import", str(file), "--team", team.slug, "--name", "mine")
    assert "mine\t" in ran("record", "list") and Record.objects.get().team == team
    with pytest.raises(CommandError, match="A recording with this name exists"):
        ran("record", "import", str(file), "--team", team.slug, "--name", "mine")
    file.write_bytes(b"nonsense")
    with pytest.raises(CommandError):
        ran("record", "import", str(file), "--team", team.slug, "--name", "other")


def test_a_teams_record_is_parsed_once_however_many_decisions_look_into_it(
    short_record: RunRecord, team: Team
) -> None:
    do_import_record(make_user(team, TeamRole.OWNER), team, "mine", to_bytes(short_record))
    assert load_record(team, "mine") is load_record(team, "mine")


def test_another_teams_record_cannot_be_replayed(short_record: RunRecord) -> None:
    theirs = make_team()
    do_import_record(make_user(theirs), theirs, "secret", to_bytes(short_record))
    with pytest.raises(RecordError, match="no record called"):
        load_record(make_team(), "secret")


def ran(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(("provider", "shared"), [("replay", False), ("inbox", True)])
def test_what_recorded_agents_found_on_another_machine_stays_in_their_run(provider: str, shared: bool) -> None:
    team = make_team()
    found, other = make_run(team), make_run(team)
    with transaction.atomic():
        take_steps(lock_run(found.pk), [Ask("q1", "findings", {}, "FindingsAnswer")])
        LlmCall.objects.filter(run=found, key="q1").update(provider=provider)
        take_steps(lock_run(found.pk), [Note("n1", "Took 84 µs.", "problem", call_key="q1")])
    assert "Took 84 µs." in {item.text for item in knowledge_of(found)}
    assert ("Took 84 µs." in {item.text for item in knowledge_of(other)}) is shared
