"""Send one webhook delivery over checked and pinned addresses (see `optimizer.llm.addresses`)."""

from __future__ import annotations

import asyncio

import httpx2
from django.utils import timezone

from optimizer.actions.webhook import claim, finish, headers_for
from optimizer.llm.addresses import SENT_HEADERS, ForbiddenAddressError, PinnedTransport
from optimizer.models import WebhookDelivery
from optimizer.secrets.keys import UnreadableKeyError

TIMEOUT_S = 10.0
OWN_HEADERS = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})


def deliver(delivery_id: int) -> str:
    """Try the delivery once if it is due. Return its state afterwards, or `not due`.

    Never raises for what the other side does.
    """
    row = claim(delivery_id)
    if row is None:
        return "not due"
    try:
        # The transport is asynchronous, because only there a deadline covers the whole request.
        status, error = asyncio.run(_post(row)), ""
    except (httpx2.HTTPError, ForbiddenAddressError, UnreadableKeyError, TimeoutError) as failure:
        status, error = None, f"{type(failure).__name__}: {failure}"
    finish(row, status, error or ("" if status and status < 300 else f"answered {status}"))
    return str(row.state)


async def _post(row: WebhookDelivery) -> int:
    """Send the request and return the status of the answer, without reading its body."""
    transport = PinnedTransport(allow_private=row.webhook.allow_private, sent_headers=SENT_HEADERS | OWN_HEADERS)
    async with (
        asyncio.timeout(TIMEOUT_S),
        httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S, follow_redirects=False) as client,
        client.stream(
            "POST", row.webhook.url, content=row.body.encode(), headers=headers_for(row, timezone.now())
        ) as answer,
    ):
        return int(answer.status_code)
