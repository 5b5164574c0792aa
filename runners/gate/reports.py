"""Write what a gate decided for machines and people: JUnit XML, Markdown, JSON.

Reasons and logs are the words of compilers and kernels. They are escaped, and cannot end the block that holds them.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as xml

from runners.gate.decision import Decision, Ruling
from runners.job import CaseResult
from runners.wire import to_plain

SUITE = "kernel gate"
LOG_CAP = 4_000
# What XML 1.0 cannot hold, even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FENCE = re.compile(r"`{3,}")


def junit(decision: Decision, problem: str, candidate: str, against: str) -> str:
    """Return JUnit XML with two tests, `correct` and `not slower`, for the test page of a CI service."""
    ruling = decision.ruling
    lacks_answer = ruling in (Ruling.NO_VERDICT, Ruling.UNDECIDED)
    failures = sum(ruling is one for one in (Ruling.WRONG, Ruling.SLOWER))
    suite = xml.Element(
        "testsuite",
        name=SUITE,
        tests="2",
        failures=str(failures),
        errors=str(int(lacks_answer)),
        skipped=str(int(ruling is Ruling.WRONG)),
        time=f"{_seconds(decision):.3f}",
    )
    _test(suite, f"{problem}: {candidate} is correct", decision, failed=ruling is Ruling.WRONG)
    speed = _test(
        suite, f"{problem}: {candidate} is not slower than {against}", decision, failed=ruling is Ruling.SLOWER
    )
    if ruling is Ruling.WRONG:
        xml.SubElement(speed, "skipped", message="a wrong kernel is not compared")
    if ruling is Ruling.UNDECIDED:
        xml.SubElement(speed, "error", message=_xml(decision.reason)[:LOG_CAP], type=ruling.in_words)
    xml.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


def markdown(decision: Decision, problem: str, candidate: str, against: str) -> str:
    """Return a summary for a pull request or a job's page."""
    mark = {Ruling.NOT_SLOWER: "✅", Ruling.SLOWER: "❌", Ruling.WRONG: "❌"}.get(decision.ruling, "⚠️")
    result = decision.deciding
    lines = [f"### {mark} {_cell(candidate)}: {decision.ruling.in_words}", "", _fenced(decision.reason), ""]
    lines += [f"Compared with {_cell(against)} on {_cell(problem)}, {len(decision.looks)} time"
              f"{'' if len(decision.looks) == 1 else 's'}."]  # fmt: skip
    if timed := [case for case in result.cases if case.candidate_us and case.parent_us]:
        lines += ["", "| case | before, µs | after, µs | speed |", "|---|---:|---:|---:|", *map(_row, timed)]
    device = str(result.environment.get("device", "")) or "unknown device"
    lines += [
        "",
        f"Measured on {_cell(device)} by harness {_cell(result.harness_version)}, sandbox: {result.sandbox}.",
    ]
    return "\n".join(lines) + "\n"


def plain(decision: Decision) -> dict[str, Any]:
    """Return the decision as JSON, with every result it rests on."""
    return {
        "ruling": decision.ruling.in_words,
        "exit_code": int(decision.ruling),
        "reason": decision.reason,
        "tolerance": decision.rules.tolerance,
        "detect": decision.rules.detect,
        "looks": [to_plain(look) for look in decision.looks],
    }


def _test(suite: xml.Element, name: str, decision: Decision, *, failed: bool) -> xml.Element:
    test = xml.SubElement(suite, "testcase", classname="runners.gate", name=_xml(name))
    if decision.ruling is Ruling.NO_VERDICT:
        # One error for the suite: both tests wait for the same machine.
        if len(suite) == 1:
            xml.SubElement(test, "error", message=_xml(decision.reason)[:LOG_CAP])
        else:
            xml.SubElement(test, "skipped", message="no verdict")
    elif failed:
        failure = xml.SubElement(
            test, "failure", message=_xml(decision.reason)[:LOG_CAP], type=decision.ruling.in_words
        )
        failure.text = _xml(_log(decision))
    return test


def _log(decision: Decision) -> str:
    """Return the compiler's words where the build failed, else the faults by case."""
    build = decision.deciding.build
    if build is not None and not build.ok:
        return build.log[:LOG_CAP]
    return "\n".join(f"{case.name}: {case.error}" for case in decision.deciding.cases if case.error)[:LOG_CAP]


def _row(case: CaseResult) -> str:
    before, after = case.parent_us or 0.0, case.candidate_us or 1.0
    return f"| {_cell(case.name)} | {before:.2f} | {after:.2f} | {before / after:.3f}× |"


def _seconds(decision: Decision) -> float:
    return sum(stage.seconds for look in decision.looks for stage in look.stages)


def _cell(text: str) -> str:
    """Return text that stays in its cell and is no markup."""
    return "`" + " ".join(text.replace("`", "'").replace("|", "¦").split()) + "`"


def _fenced(text: str) -> str:
    return "```text\n" + _FENCE.sub("'''", text[:LOG_CAP]) + "\n```"


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)
