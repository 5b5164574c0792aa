"""List, read, claim and answer prompts that wait for a person."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.actions.inbox import (
    PromptClosedError,
    PromptTakenError,
    access_prompt,
    do_answer_prompt,
    do_claim_prompt,
    do_release_prompt,
    holder_of,
    tag,
    waiting_prompts,
)
from optimizer.agents.code_blocks import AnswerError, has_edits
from optimizer.calls.conversation import last_draft, toolbox_of
from optimizer.calls.prepare import prompt_text
from optimizer.calls.transcript import transcript_of
from optimizer.models import CallState, LlmCall
from optimizer.text.markdown import fenced
from optimizer.tools.text_protocol import call_with
from optimizer.views.signed_in import user_of

PER_PAGE = 50


@login_required
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """List waiting prompts, oldest first."""
    user = user_of(request)
    page = Paginator(waiting_prompts(user), PER_PAGE).get_page(request.GET.get("page"))
    rows = [(call, _holder(request, call)) for call in page]
    template = "inbox/_list.html" if request.headers.get("HX-Request") else "inbox/list.html"
    return render(request, template, {"rows": rows, "page": page})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def prompt_page(request: HttpRequest, call_id: int) -> HttpResponse:
    """Show one prompt with a field for its answer; on POST, answer it."""
    call = access_prompt(user_of(request), call_id)
    if request.method != "POST":
        return render(request, "inbox/prompt.html", _context(request, call))
    text = request.POST.get("answer", "")
    try:
        answer = do_answer_prompt(user_of(request), call, _said(request, text), request.POST.get("model", "")[:120])
    except AnswerError as error:
        context = _context(request, call) | {
            "text": text,
            "fault": str(error),
            "model": request.POST.get("model", ""),
        }
        return render(request, "inbox/prompt.html", context, status=422)
    except PromptTakenError:
        messages.error(request, "Someone else claimed this prompt.")
        return redirect("prompt_page", call_id=call_id)
    except PromptClosedError:
        messages.error(request, "This prompt was closed.")
        return redirect("inbox")
    if answer is None:
        messages.success(request, "Tools are running. Their results appear here.")
        return redirect("prompt_page", call_id=call_id)
    messages.success(request, f"Answered {call.role} {call.key}.")
    return redirect("inbox")


@login_required
@require_safe
def prompt_state(request: HttpRequest, call_id: int) -> HttpResponse:
    """Return the state of a prompt; where it is not `?was=` any more, with a link that loads the page again.

    The page itself is left alone: somebody may be writing an answer in it.
    """
    call = access_prompt(user_of(request), call_id)
    changed = call.state != request.GET.get("was")
    tone = CallState(call.state).tone
    return render(
        request, "inbox/_state.html", {"call": call, "tone": tone, "changed": changed, "follows": not changed}
    )


@login_required
@require_POST
def prompt_claim(request: HttpRequest, call_id: int) -> HttpResponse:
    """Claim a prompt for half an hour, or release it."""
    user = user_of(request)
    call = access_prompt(user, call_id)
    try:
        if request.POST.get("release"):
            do_release_prompt(user, call)
        else:
            do_claim_prompt(user, call)
    except PromptTakenError:
        messages.error(request, "Someone else claimed this prompt.")
    except PromptClosedError:
        messages.error(request, "This prompt was closed.")
        return redirect("inbox")
    return redirect("prompt_page", call_id=call_id)


def _context(request: HttpRequest, call: LlmCall) -> dict[str, Any]:
    return {
        "call": call,
        "prompt": prompt_text(call),
        "waits": call.state == CallState.WAITING,
        "at_work": call.state == CallState.TOOLS,
        "transcript": transcript_of(call),
        # Most calls change the kernel of the last one a little.
        "text": fenced(draft.text) if (draft := last_draft(call)) else "",
        "tools": [tool for tool in toolbox_of(call).tools.values() if tool.effort is not None],
        "tone": CallState(call.state).tone,
        "follows": call.state in (CallState.WAITING, CallState.TOOLS),
        "holder": _holder(request, call),
    }


def _said(request: HttpRequest, text: str) -> str:
    """Return the answer, or the call of the tool whose button was pressed."""
    tool = request.POST.get("tool", "")
    if not tool:
        return text
    is_marked = has_edits(text) or "```" in text
    return call_with(tool, text if is_marked or not text.strip() else fenced(text))


def _holder(request: HttpRequest, call: LlmCall) -> str:
    """Return "mine", "theirs" or an empty text."""
    holder = holder_of(call)
    return "" if not holder else "mine" if holder == tag(user_of(request)) else "theirs"
