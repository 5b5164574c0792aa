"""Share the style of all figures.

Colours are names of the design system (`var(--good)`), which the page resolves, so that one figure fits light, dark
and high contrast. Labels from outside go through `label`.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

GOOD, BAD, WARN, LIVE, MUTED, ACCENT, LINE = (
    f"var(--{name})" for name in ("good", "bad", "warn", "live", "muted", "accent", "line")
)


def label(text: str, limit: int = 60) -> str:
    """Return text from outside for an axis or hover box. Plotly interprets some HTML there, so all of it is removed."""
    # Replace the angle brackets instead of escaping them: plotly decodes entities before it interprets tags.
    text = "".join(character for character in text if character.isprintable()).replace("<", "‹").replace(">", "›")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def figure(traces: list[Any], **layout: Any) -> go.Figure:
    """Build a figure with the house's layout. `uirevision` keeps a reader's zoom when new data arrive."""
    drawn = go.Figure(traces)
    drawn.update_layout(
        template=None,
        margin={"l": 56, "r": 16, "t": 12, "b": 44},
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        uirevision="kept",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    drawn.update_layout(**layout)
    drawn.update_xaxes(gridcolor=LINE, zeroline=False, linecolor=LINE, title_font_size=13)
    drawn.update_yaxes(gridcolor=LINE, zeroline=False, linecolor=LINE, title_font_size=13)
    return drawn


def level(value: float, across: str = "x") -> dict[str, Any]:
    """Return a dotted line through the whole plot at a value of the other axis."""
    other = "y" if across == "x" else "x"
    line = {"color": MUTED, "dash": "dot", "width": 1}
    return {"type": "line", f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1,
            f"{other}0": value, f"{other}1": value, "line": line}  # fmt: skip
