"""The provider against a server that somebody else wrote: `transformers serve` with a tiny model of random weights.

Needs a Python with `transformers[serving]` (docs/models.md says how to make one) and is left out where there is none:
KERNELSCI_TRANSFORMERS names that Python. A model of random weights says nothing: what is looked at is how its
server speaks, counts, streams, refuses and ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.agents.answers import json_schema_of
from optimizer.calls.check import check_provider
from optimizer.calls.worker import answer
from optimizer.llm.endpoint import Endpoint
from optimizer.llm.openai_compatible import OpenAiCompatible
from optimizer.llm.port import CallCancelledError, Completion, CompletionRequest, ProviderRefusedError
from optimizer.llm.retries import RetryPolicy
from optimizer.models import CallState, LlmCall, Provider, Run
from tests.factories import drive, make_run, make_team

PYTHON = os.environ.get("KERNELSCI_TRANSFORMERS", "")
START_S = 120.0
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="KERNELSCI_TRANSFORMERS names no Python with transformers[serving]"),
    pytest.mark.slow,
]

MAKE_MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
names = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
text = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[]))
text.pre_tokenizer, text.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
words = PreTrainedTokenizerFast(tokenizer_object=text, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
words.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}assistant: "
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(names), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=32768, bos_token_id=1, eos_token_id=2, pad_token_id=0))
model.generation_config.update(max_new_tokens=48, do_sample=True)
model.save_pretrained(sys.argv[1])
words.save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the base URL and the model name of a server that runs."""
    model, log = tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("log") / "server.log"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([PYTHON, "-c", MAKE_MODEL, str(model)], check=True, capture_output=True, env=offline)
    port = _free_port()
    command = [
        str(Path(PYTHON).parent / "transformers"),
        "serve",
        str(model),
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=offline) as server:
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1", str(model)
        finally:
            server.terminate()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 - our own server
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")


def ask(served: tuple[str, str], **request: object) -> Completion:
    provider = OpenAiCompatible(Endpoint(served[0], allow_private=True, policy=RetryPolicy(tries=1)))
    question: dict[str, object] = {"messages": [{"role": "user", "content": "Why?"}], "model": served[1]}
    return provider.complete(
        CompletionRequest(**{**question, "timeout_s": 60.0, **request}),  # type: ignore[arg-type]
        on_token=lambda text: None,
        cancelled=lambda: False,
    )


def asked_run(served: tuple[str, str], api: str = "chat", strategy: str = "scientist") -> Run:
    """Return a run whose first question waits for that server."""
    team = make_team()
    Provider.objects.create(
        team=team, name="tiny", base_url=served[0], default_model=served[1], allow_private=True, api=api
    )
    run = make_run(team, strategy=strategy, providers={"default": {"provider": "tiny"}})
    return drive(run, rounds=12)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_it_is_streamed_counted_and_ended(served: tuple[str, str], api: str) -> None:
    pieces: list[str] = []
    provider = OpenAiCompatible(Endpoint(served[0], allow_private=True))
    request = CompletionRequest(
        [{"role": "user", "content": "Why?"}], served[1], temperature=0.7, max_tokens=24, api=api, timeout_s=60
    )
    got = provider.complete(request, on_token=pieces.append, cancelled=lambda: False)
    assert len(pieces) > 1 and "".join(pieces) == got.text
    assert got.usage.prompt and got.usage.answer and got.usage.answer <= 24
    assert got.finish in {"stop", "length"} and got.dropped == ()


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_schema_and_an_effort_are_taken_or_left_out_but_never_fail_the_call(
    served: tuple[str, str], api: str
) -> None:
    got = ask(served, schema=json_schema_of("SelectorAnswer"), effort="low", max_tokens=16, api=api)
    assert got.usage.answer


def test_an_unknown_model_is_refused_in_the_servers_own_words(served: tuple[str, str]) -> None:
    with pytest.raises(ProviderRefusedError, match=r"(?i)pinned|not found|nobody"):
        ask(served, model="nobody/nothing")


def test_a_long_answer_can_be_cancelled(served: tuple[str, str]) -> None:
    provider = OpenAiCompatible(Endpoint(served[0], allow_private=True))
    request = CompletionRequest([{"role": "user", "content": "Why?"}], served[1], max_tokens=20_000, timeout_s=60)
    seen: list[str] = []
    with pytest.raises(CallCancelledError):
        for _ in range(20):  # random weights may end an answer at once
            provider.complete(request, on_token=seen.append, cancelled=lambda: bool(seen))


@pytest.mark.django_db
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_test_button_says_what_the_server_is(served: tuple[str, str], api: str) -> None:
    row = Provider.objects.create(
        team=make_team(), name="tiny", base_url=served[0], default_model=served[1], allow_private=True, api=api
    )
    check = check_provider(row)
    assert check.answers and check.streams and not check.understood, check.summary
    assert "expect little of this model" in check.summary


@pytest.mark.django_db
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_structured_answer_that_is_noise_is_stored_repaired_once_and_given_up(
    served: tuple[str, str], api: str
) -> None:
    run = asked_run(served, api)
    first = LlmCall.objects.filter(run=run).order_by("pk")[0]
    assert first.answer_schema == "DigestAnswer" and answer(first.pk)
    again = LlmCall.objects.get(run=run, key=first.key, attempt=2)
    assert answer(again.pk)
    first.refresh_from_db()
    again.refresh_from_db()
    assert [first.state, again.state] == [CallState.FAILED, CallState.FAILED]
    assert first.transport["fault"] and first.prompt_tokens and first.answer_text
    assert "JSON schema" in again.messages[-1]["content"], "the repair tells the schema in words"
    run.refresh_from_db()
    counted: list[int] = []
    for one in (first, again):
        assert one.prompt_tokens is not None and one.answer_tokens is not None
        counted.append(one.prompt_tokens + one.answer_tokens)
    assert run.spent_tokens == sum(counted), json.dumps(counted)
