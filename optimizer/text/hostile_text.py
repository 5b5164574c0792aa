"""Make text from models, compilers and kernels fit to be shown. Templates escape it afterwards."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from optimizer.text.storable import storable_text

# CSI, OSC and two-character escape sequences (ECMA-48)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Characters that reorder or hide text: "Trojan Source" (Boucher and Anderson 2021)
UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
# Of these, the ones that reorder. Others have a use in a title: they join letters of some scripts and parts of emoji.
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:()]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<kind>fatal error|error|warning): (?P<text>.+)$"
)
_LATIN_LOOKING_GREEK = frozenset("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧικνορυχϲϳ")
_WORDS = re.compile(r"\w+")
SHOWN_LOG_CHARS = 200_000


@dataclass(frozen=True)
class Diagnostic:
    """Hold a compiler's message about one line of the candidate, counted from 1."""

    line: int
    kind: str
    text: str


def plain_log(text: str) -> str:
    """Return a log without terminal codes and control characters, cut in the middle when it is very long.

    Characters that reorder or hide text are replaced by their names.
    """
    # Escape sequences first: without their ESC character the rest of a sequence would look like ordinary text.
    text = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    text = UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)
    if len(text) <= SHOWN_LOG_CHARS:
        return text
    half = SHOWN_LOG_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def sanitized_text(text: str) -> str:
    """Return an agent's text for storage, with characters that reorder or hide text replaced by their names.

    The stored answer that it comes from is left unchanged.
    """
    return plain_log(storable_text(text))


def sanitized_line(text: str) -> str:
    """Return an agent's text as `sanitized_text` does, on one line, for titles."""
    return " ".join(sanitized_text(text).split())


def without_reordering(text: str) -> str:
    """Return a text without the characters that show it, or what stands beside it, in another order."""
    return _REORDERING.sub("", text)


def unseen_name(character: str) -> str:
    """Return what to show in place of an invisible character, e.g. `U+202E RIGHT-TO-LEFT OVERRIDE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'unnamed')}"


def unseen_in(text: str) -> list[str]:
    """Return the names of the invisible characters of a text, without repetition, in order of appearance."""
    return list(dict.fromkeys(unseen_name(found) for found in UNSEEN.findall(text)))


def lookalikes_in(text: str, most: int = 20) -> list[str]:
    """Return warnings about text that may be mistaken for something else in code.

    Reported are words that mix Latin letters with another script (Unicode TS 39, "mixed-script identifiers"), and
    characters whose compatibility form is plain ASCII, such as a full-width bracket, the Greek question mark or a
    no-break space.
    """
    if text.isascii():
        return []
    found: dict[str, None] = {}
    for word in _WORDS.findall(text):
        if scripts := _foreign_scripts(word):
            found[f"“{word[:40]}” mixes Latin with {' and '.join(sorted(scripts))} letters"] = None
    for character in sorted(set(text)):
        if not character.isascii() and _passes_for_ascii(character):
            found[unseen_name(character)] = None
    return list(found)[:most]


def _foreign_scripts(word: str) -> set[str]:
    if word.isascii() or not any(c.isascii() and c.isalpha() for c in word):
        return set()
    letters = [c for c in word if c.isalpha() and not c.isascii() and not _is_plain_greek(c)]
    scripts = {unicodedata.name(c, "UNNAMED").split()[0].capitalize() for c in letters}
    # Superscripts, modifiers and µ are common in scientific identifiers and deceive nobody.
    return scripts - {"Latin", "Micro", "Modifier", "Superscript", "Subscript"}


def _is_plain_greek(character: str) -> bool:
    """Return whether a Greek letter cannot be mistaken for a Latin one: Δt and λ are mathematics."""
    return "\u0370" <= character <= "\u03ff" and character not in _LATIN_LOOKING_GREEK


def _passes_for_ascii(character: str) -> bool:
    # NFKC maps a character to the one that it imitates: a full-width bracket to `(`, a no-break space to a space.
    plain = unicodedata.normalize("NFKC", character)
    return (len(plain) == 1 and plain.isascii() and not plain.isalnum()) or 0xFF00 <= ord(character) <= 0xFF5E


def diagnostics_in(log: str, limit: int = 50) -> list[Diagnostic]:
    """Return a compiler's errors and warnings about the candidate itself, without those about system headers."""
    found: list[Diagnostic] = []
    for line in plain_log(log).splitlines():
        match = _DIAGNOSTIC.match(line)
        # Messages about system headers point at lines of other files.
        if match and not match["file"].startswith(("/usr/", "/opt/")) and len(found) < limit:
            found.append(Diagnostic(int(match["line"]), match["kind"], match["text"]))
    return found
