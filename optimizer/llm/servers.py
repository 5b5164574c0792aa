"""List well-known model servers, so that nobody has to look up an address to add one.

Model names come from the price list (`prices.toml`). Servers on a machine of one's own and gateways offer what their
operators load, so no names are listed for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from optimizer.llm.prices import Price, listed

LOCAL = "On this machine; needs private addresses"


@dataclass(frozen=True)
class KnownServer:
    """Hold the address and the API of a server, and a hint at what its model names look like."""

    name: str
    label: str
    summary: str
    base_url: str
    api: str = "chat"
    allow_private: bool = False
    model_hint: str = ""


KNOWN_SERVERS = (
    KnownServer("openai", "OpenAI", "Key from platform.openai.com", "https://api.openai.com/v1", "responses"),
    KnownServer(
        "anthropic", "Anthropic", "OpenAI-compatible address; key from console.anthropic.com",
        "https://api.anthropic.com/v1",
    ),
    KnownServer(
        "gemini", "Google Gemini", "OpenAI-compatible address; key from aistudio.google.com",
        "https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    KnownServer(
        "openrouter", "OpenRouter", "Many vendors behind one key", "https://openrouter.ai/api/v1",
        model_hint="vendor/model",
    ),
    KnownServer("vllm", "vLLM", LOCAL, "http://127.0.0.1:8000/v1", allow_private=True, model_hint="organisation/model"),
    KnownServer("ollama", "Ollama", LOCAL, "http://127.0.0.1:11434/v1", allow_private=True, model_hint="model:tag"),
    KnownServer(
        "llama-cpp", "llama.cpp", LOCAL, "http://127.0.0.1:8080/v1", allow_private=True, model_hint="any name"
    ),
)  # fmt: skip


def known_server(name: str) -> KnownServer | None:
    """Return the server of that name, or None."""
    return next((server for server in KNOWN_SERVERS if server.name == name), None)


def listed_models(base_url: str) -> list[tuple[str, Price]]:
    """Return the models with a list price at the host of an address, cheapest output first."""
    host = urlsplit(base_url).hostname
    found = [(model, price) for (at, model), price in listed().items() if at == host]
    return sorted(found, key=lambda pair: (pair[1].output, pair[0]))
