"""Rewrite what plain C++ cannot parse of HIP and CUDA: launches, dynamic shared memory, inline assembly.

The text is hostile and need not be well-formed: what is not understood stays as it is, and the compiler then says what
it does not know. Lines keep their numbers, which name barriers in messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LITERALS = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|R"(?P<mark>[^()\\\s]{0,16})\(.{0,1000}?\)(?P=mark)"'
    # A literal without an end reaches to the end of its line: looking for one at every quote would take quadratic time.
    r'|"(?:\\.|[^"\\\n])*+"?|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*+\'?',
    re.DOTALL,
)
# Every repetition is bounded and no two can share a text, so that hostile sources cannot make the search slow.
_ALIGNED = r"(?:__align__|alignas)\s{0,9}\(\s{0,9}\w{1,40}\s{0,9}\)"
_DYNAMIC = re.compile(
    rf"extern\s{{1,9}}(?:{_ALIGNED}\s{{0,9}})?__shared__\s{{1,9}}(?:{_ALIGNED}\s{{0,9}})?"
    rf"(?P<type>[\w:][\w:<>, ]{{0,200}}?)\s{{1,9}}(?:{_ALIGNED}\s{{0,9}})?(?P<name>[A-Za-z_]\w{{0,80}})"
    rf"\s{{0,9}}\[\s{{0,9}}\]\s{{0,9}};"
)
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__)\s*)?\(")
# What only orders or delays: one thread runs at a time, and it sees its own memory operations in order.
_ORDERING = re.compile(
    r"(?:s_nop|s_setprio|s_sleep|s_sched_barrier|s_inst_prefetch|buffer_wbl2|buffer_inv|;|//).*|"
)
_WAIT = re.compile(r"s_waitcnt\b.*")
# Limits beyond which a source is not rewritten: no kernel comes near them.
MOST_CHARACTERS, MOST_STATEMENTS, LONGEST_STATEMENT = 200_000, 300, 8_000


class NotCovered(ValueError):
    """Report that a text uses what the emulation does not have. The message names it."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def rewritten(text: str) -> str:
    """Return the source as C++ for our header. Raises NotCovered for inline assembly and enormous sources."""
    if len(text) > MOST_CHARACTERS or text.count("<<<") > MOST_STATEMENTS or text.count("asm") > MOST_STATEMENTS:
        raise NotCovered("a source of this size")
    text = _applied(text, _assembly_edits(text, _masked(text)))
    text = _applied(text, _dynamic_edits(_masked(text)))
    return _applied(text, _launch_edits(text, _masked(text)))


def _masked(text: str) -> str:
    """Return the text with comments and literals blanked out, each character at its place."""
    return _LITERALS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _applied(text: str, edits: list[_Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        # A statement that spanned lines still does, so that every later line keeps its number.
        lines = text.count("\n", edit.start, edit.end) - edit.text.count("\n")
        text = text[: edit.start] + edit.text + "\n" * max(0, lines) + text[edit.end :]
    return text


def _dynamic_edits(masked: str) -> list[_Edit]:
    """Make `extern __shared__ T name[];` a pointer to the block's dynamic shared memory."""
    edits = []
    for match in _DYNAMIC.finditer(masked):
        element = match["type"].strip()
        declared = f"{element}* const {match['name']} = static_cast<{element}*>(::emu::emu_dynamic_lds());"
        edits.append(_Edit(match.start(), match.end(), f"[[maybe_unused]] {declared}"))
    return edits


def _launch_edits(text: str, masked: str) -> list[_Edit]:
    """Make `kernel<<<grid, block>>>(arguments)` an object that is called with a lambda and the arguments."""
    edits = []
    at = masked.find("<<<")
    while at >= 0:
        if (edit := _launch_edit(text, masked, at)) is not None:
            edits.append(edit)
        at = masked.find("<<<", at + 3)
    return edits


def _launch_edit(text: str, masked: str, at: int) -> _Edit | None:
    start = _kernel_start(masked, at)
    close = masked.find(">>>", at)
    if close < 0 or start >= at:
        return None
    gap = masked[close + 3 : close + 100]
    opened = close + 3 + len(gap) - len(gap.lstrip())
    end = _closing(masked, opened)
    if end is None:
        return None
    kernel, arguments = text[start:at].strip(), text[opened + 1 : end]
    name = re.sub(r'[\\"\n]', " ", kernel)
    comma = ", " if masked[opened + 1 : end].strip() else ""
    call = f"[&](auto... emu_values) EMU_QUIET {{ {kernel}(emu_values...); }}{comma}{arguments}"
    return _Edit(start, end + 1, f'::emu::Launch("{name}", {text[at + 3 : close]})({call})')


def _kernel_start(masked: str, at: int) -> int:
    """Return where the expression before a launch begins: a name, perhaps with template arguments, or parentheses."""
    end = len(masked[:at].rstrip())
    if masked[end - 1 : end] == ">":
        end = len(masked[: _opening(masked, end - 1, "<", ">")].rstrip())
    elif masked[end - 1 : end] == ")":
        return _opening(masked, end - 1, "(", ")")
    while end > 0 and (masked[end - 1].isalnum() or masked[end - 1] in "_:."):
        end -= 1
    return end


def _opening(masked: str, at: int, opens: str, closes: str) -> int:
    """Return the place of the bracket that the one at `at` closes. Parentheses hide comparisons from `<` and `>`."""
    depth, inner = 0, 0
    for place in range(at, max(-1, at - LONGEST_STATEMENT), -1):
        letter = masked[place]
        if opens == "<" and letter in "()":
            inner += 1 if letter == ")" else -1
        elif inner == 0 and letter in (opens, closes):
            depth += 1 if letter == closes else -1
            if depth == 0:
                return place
    return at + 1


def _closing(masked: str, at: int) -> int | None:
    """Return the place of the parenthesis that closes the one at `at`, or None."""
    if masked[at : at + 1] != "(":
        return None
    depth = 0
    for place in range(at, min(len(masked), at + LONGEST_STATEMENT)):
        depth += {"(": 1, ")": -1}.get(masked[place], 0)
        if depth == 0:
            return place
    return None


def _assembly_edits(text: str, masked: str) -> list[_Edit]:
    """Replace assembly that only waits, delays or orders. Raises NotCovered for any other."""
    edits = []
    for match in _ASSEMBLY.finditer(masked):
        end = _closing(masked, match.end() - 1)
        if end is None:
            continue
        statement = text[match.end() : end]
        edits.append(_Edit(match.start(), end + 1, _replacement(statement, text.count("\n", 0, match.start()) + 1)))
    return edits


def _replacement(statement: str, line: int) -> str:
    template, _, operands = statement.partition(":")
    instructions = [part.strip() for part in _template(template) if part.strip()]
    barrier = [part for part in instructions if part == "s_barrier"]
    waits = [part for part in instructions if _WAIT.fullmatch(part)]
    others = [part for part in instructions if part not in (*barrier, *waits) and not _ORDERING.fullmatch(part)]
    if others:
        raise NotCovered(f"inline assembly in line {line}: {others[0][:60]}")
    if instructions and re.search(r'"[=+]', operands):
        raise NotCovered(f"inline assembly with results in line {line}: {instructions[0][:60]}")
    calls = ["__builtin_amdgcn_s_waitcnt(0)"] if waits else []
    calls += ["__builtin_amdgcn_s_barrier()"] * len(barrier)
    return f"({', '.join(calls) or '(void)0'})"


def _template(text: str) -> list[str]:
    # A literal without an end reaches to the end of the text, over lines too: looking for one at every quote would take
    # quadratic time.
    joined = "".join(re.findall(r'"((?:\\.|[^"\\])*+)(?:"|\\?\Z)', text, re.DOTALL))
    return re.split(r"\\n(?:\\t)?|;", joined)
