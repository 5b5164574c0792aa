"""`manage.py inbox`: list and answer waiting prompts on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from optimizer.actions.inbox import (
    PromptClosedError,
    PromptTakenError,
    access_prompt,
    do_answer_prompt,
    waiting_prompts,
)
from optimizer.agents.code_blocks import AnswerError
from optimizer.calls.prepare import prompt_text
from optimizer.llm.tool_messages import call_in_text
from optimizer.management.words import Words, WordsCommand
from optimizer.models import LlmCall


class Command(WordsCommand):
    """Answer prompts, except those that somebody else has claimed."""

    help = "List, show and answer the prompts that wait for a person or an outside agent."

    def add_words(self, words: Words) -> None:
        """Declare list | show ID | answer ID --file FILE | tool ID NAME."""
        listing = words.add_parser("list", help="waiting prompts, oldest first")
        listing.add_argument("--run", type=int)
        show = words.add_parser("show", help="print one complete prompt")
        show.add_argument("id", type=int)
        answer = words.add_parser("answer", help="answer a prompt")
        answer.add_argument("id", type=int)
        answer.add_argument("--file", required=True, help="file with the answer; - is standard input")
        answer.add_argument("--model", default="", help="the model that wrote the answer, if one did")
        tool = words.add_parser("tool", help="call a tool instead of answering; show has the result later")
        tool.add_argument("id", type=int)
        tool.add_argument("name")
        tool.add_argument("arguments", nargs="*", metavar="NAME=VALUE")
        tool.add_argument("--file", help="file with the kernel; - is standard input")

    def _list(self, options: dict[str, Any]) -> None:
        waiting = waiting_prompts(self.user)
        for call in waiting.filter(run_id=options["run"]) if options["run"] else waiting:
            self.stdout.write(f"{call.pk}\trun {call.run_id}\t{call.role}\t{call.key}.{call.attempt}")

    def _show(self, options: dict[str, Any]) -> None:
        self.stdout.write(prompt_text(access_prompt(self.user, options["id"])))

    def _answer(self, options: dict[str, Any]) -> None:
        self._say(options["id"], _read(options["file"]), options["model"])

    def _tool(self, options: dict[str, Any]) -> None:
        arguments = dict(part.partition("=")[::2] for part in options["arguments"])
        arguments |= {"source": _read(options["file"])} if options["file"] else {}
        written = call_in_text({"name": options["name"], "arguments": json.dumps(arguments)})
        self._say(options["id"], written, "")

    def _say(self, call_id: int, text: str, model: str) -> None:
        call = access_prompt(self.user, call_id)
        try:
            answer = do_answer_prompt(self.user, call, text, model)
        except AnswerError as error:
            raise CommandError(f"the answer cannot be used ({error.fault.value}): {error}") from error
        except PromptTakenError as error:
            raise CommandError("someone else has claimed this prompt") from error
        except PromptClosedError as error:
            raise CommandError(f"this prompt is no longer waiting: it is {_state(call)}") from error
        done = "answered" if answer is not None else "running tools for"
        self.stdout.write(f"{done} {call.role} {call.key}")


def _read(file: str) -> str:
    return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8", "replace")


def _state(call: LlmCall) -> str:
    call.refresh_from_db(fields=["state"])
    return call.get_state_display().lower()
