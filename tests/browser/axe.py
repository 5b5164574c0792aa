"""Find with axe-core what is wrong with a page for people who use a keyboard, a screen reader or see little
contrast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """async (rules) => {
  const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...only });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(", ")}`);
}"""


def faults_of(page: Page, rules: Sequence[str] | None = None) -> list[str]:
    """Return serious and critical faults as `rule: elements`, by these rules alone or by all."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(AXE.read_text())
    return list(page.evaluate(_RUN, rules))
