"""Save a run's answers as one file: enough to replay the run, and nothing about people or keys.

Prompts are stored as hashes, because they quote guidance and comments. Answers are stored as text without what is
known to be private to the team. The file is one JSON document, gzipped on disk, and is validated strictly when read,
because recordings come from strangers.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.utils.text import slugify

from optimizer.llm.recording import (
    RecordedCall,
    RecordedKernel,
    RecordedToolCall,
    RecordedTurn,
    RecordError,
    RunRecord,
    from_bytes,
    prompt_hash,
)
from optimizer.models import (
    AuthorKind,
    CallState,
    CallTurn,
    Finding,
    Guidance,
    Kernel,
    KernelParent,
    LlmCall,
    Provider,
    Record,
    Run,
    Team,
    User,
)
from optimizer.models.choices import OPEN_CALL_STATES
from optimizer.search import settings_in_force
from optimizer.search.base import Draft, RecordedAsk
from optimizer.search.machinery.seeds import EARLIER_KEY
from optimizer.secrets.keys import UnreadableKeyError
from runners.job import Language, Source

DEFAULT_ROLE = "default"
SHIPPED = Path(__file__).parent / "records"
REMOVED = "[removed]"
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
# OpenAI, Anthropic, xAI, NVIDIA, GitLab and Slack; ours, GitHub, Groq, Hugging Face and Replicate, whose keys could be
# identifiers but for a figure in them; Google and Amazon.
_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|nvapi|glpat|xox[abeprs])-[A-Za-z0-9_-]{16,}"
    r"|(?:ks|sk|gh[opsu]|github_pat|gsk|hf|r8)_(?=\w*\d)[A-Za-z0-9_-]{20,}"
    r"|AIza[A-Za-z0-9_-]{30,}|AKIA[A-Z0-9]{16})"
)
_MARK = re.compile(
    r"^(?:(?P<fence> {0,3}```)|[ \t]*+(?:(?P<search><{5,9} ?SEARCH\b)|(?P<replace>>{5,9} ?REPLACE\b)))",
    re.MULTILINE,
)
_CLOSES = {"fence": "fence", "search": "replace"}
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SHORTEST_PHRASE = 5


def record_of(run: Run, title: str = "") -> RunRecord:
    """Return the recording of a run, without private text."""
    strip = Stripper.of(run)
    ended = LlmCall.objects.filter(run=run).exclude(state__in=OPEN_CALL_STATES)
    calls = ended.order_by("pk").prefetch_related("turns__tool_calls")
    return RunRecord(
        title=strip.prose(title),
        problem=run.problem_version.problem.slug,
        target=run.target.key,
        strategy=run.strategy,
        # Complete, so that a replay does not depend on the defaults of a later version.
        settings=strip.values(settings_in_force(run.strategy, run.settings)),
        seed=run.seed,
        recorded_on=run.created_at.date(),
        kernels=Kernel.objects.filter(run=run).count(),
        evaluations=run.spent_evaluations,
        best_speedup=run.best_speedup,
        calls=[_recorded(call, strip) for call in calls],
        tuned=_tuned(run, strip),
        earlier=_earlier(run, strip),
    )


def load_record(team: Team, name: str) -> RunRecord:
    """Return the team's recording of that name, else the shipped one. Raises RecordError."""
    row_id = Record.objects.filter(team=team, name=name).values_list("pk", flat=True).first()
    if row_id is not None:
        return _stored(row_id)
    if name in shipped():
        return _shipped(name)
    raise RecordError(f"there is no record called {name}")


def record_name(run: Run, stated: str) -> str:
    """Return the recording from which the run's agents answer: `{problem}` stands for the problem's name.

    So one configuration of a campaign replays a recording for each problem.
    """
    return stated.replace("{problem}", slugify(run.problem_version.problem.slug))


# Every decision of a replayed run looks into its recording, so each is parsed once per process. They never change.
@lru_cache(maxsize=8)
def _stored(row_id: int) -> RunRecord:
    return RunRecord.model_validate(Record.objects.get(pk=row_id).content)


@lru_cache(maxsize=8)
def _shipped(name: str) -> RunRecord:
    return from_bytes((SHIPPED / f"{name}.json.gz").read_bytes())


@dataclass(frozen=True)
class Recorded:
    """Hold what a replayed run takes from its recording.

    These are the questions by key, tuned kernels by their parent, and the kernels of earlier runs with which a warm
    start began.
    """

    asks: Mapping[str, RecordedAsk] = field(default_factory=dict)
    tuning: Mapping[str, Sequence[Draft]] = field(default_factory=dict)
    earlier: Sequence[Draft] = ()


def recorded_in(run: Run) -> Recorded:
    """Return what the run replays; nothing for a run that is no replay.

    Recordings of format 1 do not say what their questions were about, and a replay decides anew.
    """
    name = str(dict(run.providers.get(DEFAULT_ROLE) or {}).get("record", ""))
    if not name:
        return Recorded()
    try:
        record = load_record(run.team, record_name(run, name))
    except RecordError:
        # The provider reports the missing recording with every call.
        return Recorded()
    asks = {
        call.key: RecordedAsk(call.role, call.context, call.answer_schema)
        for call in record.calls
        if call.context and call.state == CallState.ANSWERED
    }
    tuning: dict[str, list[Draft]] = defaultdict(list)
    for kernel in record.tuned:
        tuning[kernel.parent].append(_draft(kernel, AuthorKind.TUNER))
    return Recorded(asks, tuning, [_draft(kernel, AuthorKind.SEED) for kernel in record.earlier])


def _draft(kernel: RecordedKernel, author: AuthorKind) -> Draft:
    source = Source(Language(kernel.language), kernel.text, dict(kernel.tunables), tuple(kernel.flags))
    parents = (kernel.parent,) if kernel.parent else ()
    return Draft(kernel.key, source, parents, author.value, title=kernel.title)


def replay_note(run: Run) -> str:
    """Say how many recorded answers belong to prompts that differ from this run's, or return an empty text."""
    replayed = LlmCall.objects.filter(run=run, transport__recorded=True, state=CallState.ANSWERED)
    differing = replayed.filter(transport__same_prompt=False).count()
    if not differing:
        return ""
    return (
        f"{differing} of {replayed.count()} recorded answers belong to prompts that differ from this run's "
        "prompts in measured times and possibly in wording."
    )


def shipped() -> list[str]:
    """Return the names of the recordings that ship with the product."""
    return sorted(path.name.removesuffix(".json.gz") for path in SHIPPED.glob("*.json.gz"))


class Stripper:
    """Remove what is private to a team from texts.

    Removed everywhere: provider keys, e-mail addresses, anything shaped like a key, full names, and the team's own
    phrases, however they are wrapped, quoted or capitalised. Removed in prose only: account names, and phrases that
    could be identifiers (a run may be called "softmax").
    """

    def __init__(self, phrases: Iterable[str], accounts: Iterable[str], keys: Iterable[str] = ()) -> None:
        long = {phrase.strip() for phrase in phrases if len(phrase.strip()) >= _SHORTEST_PHRASE}
        names = {name for name in accounts if len(name) >= 3} | {phrase for phrase in long if phrase.isidentifier()}
        self._keys = [key for key in keys if key]
        self._phrases = _any_of(map(_loosely, _longest_first(phrase for phrase in long if phrase not in names)))
        self._accounts = _any_of(rf"\b{re.escape(name)}\b" for name in _longest_first(names))

    @classmethod
    def of(cls, run: Run) -> Stripper:
        """Collect what is private about a run: its team's people, keys, guidance and comments."""
        people = list(User.objects.filter(memberships__team=run.team).distinct())
        people += [run.created_by] if run.created_by else []
        full = [name for person in people for name in (person.get_full_name(), person.email)]
        return cls([*full, *_words_of(run)], [person.username for person in people], _keys(run.team))

    def everywhere(self, text: str) -> str:
        """Return the text without keys, phrases and addresses."""
        for key in self._keys:
            text = text.replace(key, REMOVED)
        text = self._phrases.sub(REMOVED, text) if self._phrases else text
        return _KEY.sub(REMOVED, _EMAIL.sub(REMOVED, text))

    def prose(self, text: str) -> str:
        """Return prose without account names as well; code blocks and edits keep them."""
        cleaned, done, parts = self.everywhere(text), 0, list[str]()
        for start, end in _code_spans(cleaned):
            parts += [self._without_accounts(cleaned[done:start]), cleaned[start:end]]
            done = end
        return "".join([*parts, self._without_accounts(cleaned[done:])])

    def values(self, settings: Any) -> Any:
        """Clean the texts in a run's settings; names and numbers belong to the strategy and stay."""
        if isinstance(settings, dict):
            return {name: self.values(value) for name, value in settings.items()}
        if isinstance(settings, list):
            return [self.values(value) for value in settings]
        return self.everywhere(settings) if isinstance(settings, str) else settings

    def _without_accounts(self, text: str) -> str:
        return self._accounts.sub(REMOVED, text) if self._accounts else text


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where fenced blocks and edits begin and end. What is never closed is prose."""
    marks = [(str(found.lastgroup), found) for found in _MARK.finditer(text)]
    # Looking for the end of each that has none would take quadratic time.
    last = {kind: found.start() for kind, found in marks}
    opened: tuple[str, int] | None = None
    for kind, found in marks:
        if opened is None:
            if last.get(_CLOSES.get(kind, ""), -1) > found.start():
                opened = kind, found.start()
        elif kind == _CLOSES[opened[0]]:
            yield opened[1], found.end()
            opened = None


def _longest_first(texts: Iterable[str]) -> list[str]:
    """Sort the texts, longest first, so that a phrase is removed before a part of it; ties in alphabetical order."""
    return sorted(texts, key=lambda text: (-len(text), text))


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Combine the patterns into one, or return None for none."""
    joined = "|".join(patterns)
    return re.compile(joined, re.IGNORECASE) if joined else None


def _loosely(phrase: str) -> str:
    """Build a pattern for the phrase with any white space between its words, also as written inside JSON."""
    return r"(?:\s|\\[nrt])+".join("".join(map(_as_written, word)) for word in phrase.split())


def _as_written(char: str) -> str:
    """Build a pattern for one character as itself or as JSON escapes it."""
    escaped = json.dumps(char)[1:-1]
    return re.escape(char) if escaped == char else f"(?:{re.escape(char)}|{re.escape(escaped)})"


def _recorded(call: LlmCall, strip: Stripper) -> RecordedCall:
    return RecordedCall(
        key=call.key,
        role=call.role,
        attempt=call.attempt,
        state=call.state,
        model=strip.prose(str(call.transport.get("served_by") or call.model))[:120],
        prompt_version=call.prompt_version,
        prompt_sha256=prompt_hash(call.messages),
        context=strip.values(call.context),
        answer_schema=call.answer_schema,
        answer_text=strip.prose(call.answer_text),
        error=strip.prose(call.error)[:4_000],
        prompt_tokens=call.prompt_tokens,
        answer_tokens=call.answer_tokens,
        submitted=bool(call.transport.get("submitted")),
        turns=[_recorded_turn(turn, strip) for turn in call.turns.all()],
    )


def _recorded_turn(turn: CallTurn, strip: Stripper) -> RecordedTurn:
    """Return a turn without private text. Results are left out, because a replay calls the tools again."""
    calls = [
        RecordedToolCall(name=call.name, arguments=strip.values(call.arguments)) for call in turn.tool_calls.all()
    ]
    return RecordedTurn(text=strip.prose(turn.text), calls=calls if turn.native else [])


def _tuned(run: Run, strip: Stripper) -> list[RecordedKernel]:
    """Return the kernels that tuning made of others."""
    bases = KernelParent.objects.filter(kernel__run=run, kernel__author_kind=AuthorKind.TUNER, rank=0)
    links = bases.select_related("kernel", "parent").order_by("kernel__number")
    return [_kernel(link.kernel, link.parent.key, strip) for link in links]


def _earlier(run: Run, strip: Stripper) -> list[RecordedKernel]:
    """Return the kernels of earlier runs with which the run began."""
    taken = run.kernels.filter(key__startswith=EARLIER_KEY).order_by("number")
    return [_kernel(kernel, "", strip) for kernel in taken]


def _kernel(kernel: Kernel, parent: str, strip: Stripper) -> RecordedKernel:
    return RecordedKernel(
        key=kernel.key,
        parent=parent,
        title=strip.prose(kernel.title),
        language=kernel.language,
        text=strip.everywhere(kernel.source),
        tunables=kernel.tunables,
        flags=kernel.flags,
    )


def _words_of(run: Run) -> list[str]:
    """Return what people wrote about the run: whole texts, and their lines and sentences."""
    texts = [text for source in PRIVATE_TEXTS for text in source(run)]
    return [piece for text in texts for piece in (text, *text.splitlines(), *_SENTENCE_END.split(text))]


def _peoples_findings(run: Run) -> list[str]:
    """Return lines that people added to the team's findings, which prompts show; lines first written by an agent
    stay.
    """
    written = Finding.objects.filter(team=run.team).values_list("origin", "text")
    agents = {line for origin, text in written if origin != "person" for line in text.splitlines()}
    return [
        line for origin, text in written if origin == "person" for line in text.splitlines() if line not in agents
    ]


# Sources of people's texts about a run. Code that stores further texts (comments, notes) must add them here.
PRIVATE_TEXTS: list[Callable[[Run], Iterable[str]]] = [
    lambda run: (run.title, run.guidance),
    lambda run: Guidance.objects.filter(run=run).values_list("text", flat=True),
    _peoples_findings,
]


def _keys(team: Team) -> list[str]:
    """Return the team's provider keys, as far as they can be decrypted."""
    found = []
    for provider in Provider.objects.filter(team=team):
        try:
            # Keys that cannot be decrypted cannot be searched for in the texts either.
            found.append(provider.read_key())
        except UnreadableKeyError:
            continue
    return found
