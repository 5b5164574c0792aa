"""Name browsers by what they say of themselves."""

from __future__ import annotations

# A user agent names its relatives too: the first of these that it contains is the browser itself.
_BROWSERS = ("Edg", "OPR", "Firefox", "HeadlessChrome", "Chrome", "Safari", "curl")
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "CrOS", "Linux")
_SHOWN = {"Edg": "Edge", "OPR": "Opera", "Mac OS": "macOS", "CrOS": "ChromeOS"}
LABEL_CHARS = 60


def browser_name(user_agent: str) -> str:
    """Return the browser in words, as far as its user agent reveals it: `Firefox on Linux`."""
    names = [next((name for name in known if name in user_agent), "") for known in (_BROWSERS, _SYSTEMS)]
    words = " on ".join(_SHOWN.get(name, name) for name in names if name)
    return words or user_agent[:LABEL_CHARS] or "unknown"
