"""Restrict where a provider's base URL may lead, to prevent server-side request forgery (SSRF).

A name is resolved once per connection. Every address that it resolves to must be allowed, and the connection goes to
the checked address itself, while TLS and the Host header still use the name. A name that changes its address between
check and use (DNS rebinding) therefore gains nothing. Redirects and proxies are disabled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from typing import cast
from urllib.parse import urlsplit

import httpx2

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# What a provider's server is told. The SDK adds more: a description of this machine, and, from the environment, an
# organisation and custom headers that belong to whoever started the worker and not to this provider.
SENT_HEADERS = frozenset(
    {"host", "authorization", "content-type", "content-length", "transfer-encoding", "accept", "user-agent"}
)

# Addresses that hand out a machine's credentials: the link-local ranges (AWS, GCP, Azure, Oracle) and those outside.
METADATA = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",  # link local: AWS, GCP, Azure, DigitalOcean, Oracle instance metadata
        "fe80::/10",  # the same in IPv6
        "fd00:ec2::/32",  # AWS instance metadata over IPv6
        "fd20:ce::/32",  # GCP metadata over IPv6
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure's host agent
        "192.0.0.192/32",  # Oracle Cloud classic
    )
)
# Private to a site, a host or a carrier: allowed where an administrator says so.
PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "127.0.0.0/8",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
    )
)
# IPv6 prefixes whose last 32 bits are an IPv4 address: IPv4-compatible and mapped ones, SIIT's translated ones
# (RFC 2765), and NAT64's well-known prefix (RFC 6052).
_ENDS_IN_IPV4 = tuple(
    ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
# Never public, whatever the version of Python says: newer ones know more of them (gh-113171, gh-124217).
RESERVED = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments
        "198.18.0.0/15",  # measurements between networks
        "64:ff9b:1::/48",  # NAT64 within a site: where the IPv4 address stands is its operator's choice
        "100::/64",  # discarded
        "2001:2::/48",  # measurements between networks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing within a site
    )
)


class ForbiddenAddressError(ValueError):
    """Report a base URL that must not be requested; the message gives the reason to the person who typed it."""


def check_base_url(url: str) -> str:
    """Return the URL without trailing slashes.

    Raises ForbiddenAddressError for anything but http or https with a host.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ForbiddenAddressError(f"not a URL: {error}") from error
    if parts.scheme not in {"http", "https"}:
        raise ForbiddenAddressError("the address must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise ForbiddenAddressError("the address has no host")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddressError("leave name and password out of the address: the key has its own field")
    if parts.query or parts.fragment:
        raise ForbiddenAddressError("the address must have no ?query and no #fragment")
    if any(char.isspace() or ord(char) < 32 for char in url.strip()):
        raise ForbiddenAddressError("the address contains blanks or control characters")
    return url.strip().rstrip("/")


def check_address(address: IpAddress, *, allow_private: bool) -> None:
    """Raise ForbiddenAddressError unless `address`, and any IPv4 address embedded in it, may be connected to."""
    # An IPv6 literal such as ::ffff:169.254.169.254 reaches the embedded IPv4 address.
    for candidate in (address, *_embedded(address)):
        # Never allowed, not even by an administrator: these addresses hand out the machine's credentials.
        if any(_within(candidate, network) for network in METADATA):
            raise ForbiddenAddressError(f"{address} is a metadata or link-local address, which is never asked")
        if any(_within(candidate, network) for network in PRIVATE):
            if not allow_private:
                raise ForbiddenAddressError(
                    f"{address} is a private address; an administrator can allow it for this provider"
                )
        elif not _is_global(candidate) or candidate.is_multicast or _is_reserved(candidate):
            raise ForbiddenAddressError(f"{address} is not a public address")


async def resolve(host: str, port: int, *, allow_private: bool) -> str:
    """Return the address to connect to for `host`.

    Raises ForbiddenAddressError if any of its addresses is forbidden, and httpx2.ConnectError when it has none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"{host} does not resolve: {error}") from error
    # A zone index such as fe80::1%eth0 is no part of the address.
    texts = [str(entry[4][0]).partition("%")[0] for entry in found]
    # All addresses must pass, not only the one that is used: an attacker's name server may order them at will.
    return _checked(texts, allow_private=allow_private)


def check_host(host: str, *, allow_private: bool) -> None:
    """Raise ForbiddenAddressError for a host whose present addresses are forbidden.

    A name that does not resolve now passes, because the binding check is repeated for each connection.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    _checked([str(entry[4][0]).partition("%")[0] for entry in found], allow_private=allow_private)


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Send HTTP requests to checked and pinned addresses, and limit the size of responses."""

    def __init__(
        self,
        *,
        allow_private: bool,
        inner: httpx2.AsyncBaseTransport | None = None,
        sent_headers: frozenset[str] = SENT_HEADERS,
    ) -> None:
        self.allow_private, self.sent_headers = allow_private, sent_headers
        # A proxy from the environment would resolve the name itself and bypass the check.
        self._inner = inner or httpx2.AsyncHTTPTransport(trust_env=False, retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request` to the checked address of its host. Raises ForbiddenAddressError."""
        host, port = request.url.host, request.url.port or (443 if request.url.scheme == "https" else 80)
        address = await resolve(host, port, allow_private=self.allow_private)
        # The URL names the checked address from here on, so TLS needs the original name for SNI and the
        # certificate.
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        kept = [(name, value) for name, value in request.headers.items() if name.lower() in self.sent_headers]
        request.headers = httpx2.Headers([*kept, ("accept-encoding", "identity"), ("connection", "keep-alive")])
        response = await self._inner.handle_async_request(request)
        # A compressed body could expand far beyond the size limit before the stream counts its bytes.
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server compressed its answer although it was asked not to")
        response.stream = _CappedStream(cast(httpx2.AsyncByteStream, response.stream), MAX_RESPONSE_BYTES)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class _CappedStream(httpx2.AsyncByteStream):
    """Wrap a response body and fail where it grows past `cap_bytes`."""

    def __init__(self, inner: httpx2.AsyncByteStream, cap_bytes: int) -> None:
        self._inner = inner
        self._left_bytes = cap_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left_bytes -= len(chunk)
            if self._left_bytes < 0:
                raise httpx2.ReadError("the answer is larger than any answer may be")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _checked(texts: Sequence[str], *, allow_private: bool) -> str:
    """Return the first of the addresses after checking every one of them."""
    for text in texts:
        check_address(ipaddress.ip_address(text), allow_private=allow_private)
    return texts[0]


def _within(address: IpAddress, network: IpNetwork) -> bool:
    return address.version == network.version and address in network


def _is_global(address: IpAddress) -> bool:
    """Return whether an address is public. One of 6to4 counts as public: the IPv4 address in it is judged beside it.

    Python 3.11.2, Debian 12's, calls all of them private, whatever they embed.
    """
    return address.is_global or _within(address, SIX_TO_FOUR)


def _is_reserved(address: IpAddress) -> bool:
    return any(_within(address, network) for network in RESERVED)


def _embedded(address: IpAddress) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address stands for: 6to4, Teredo and `_ENDS_IN_IPV4`."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.sixtofour, *(address.teredo or ())]
    # `::` and `::1` also lie in the IPv4-compatible range but are not embedded IPv4 addresses.
    if int(address) > 1 and any(address in network for network in _ENDS_IN_IPV4):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [embedded for embedded in found if embedded is not None]
