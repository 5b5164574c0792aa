"""Call tools of an MCP server through the official client, as tests do."""

from __future__ import annotations

from typing import Any

from mcp.client.client import Client


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the tool's answer. Fails where the tool refuses."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    content = found.structured_content
    return content["result"] if content and set(content) == {"result"} else content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Return why the tool refuses. Fails where it answers."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.content
    return str(found.content[0].text)  # type: ignore[union-attr]
