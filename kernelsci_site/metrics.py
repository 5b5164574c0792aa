"""Serve `/metrics` to Prometheus, in whichever of its formats the request asks for.

The values are read from the database on request, so that any number of processes agree; only the count of sockets is
that of the answering process.

With KERNELSCI_METRICS_TOKEN set, whoever sends it as a bearer token may read. Without one, only this machine may, and
behind a proxy nobody, as every request comes from this machine there. Others get a 404.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kernelsci_site.sockets import OPEN
from optimizer.queries.metrics import read_metrics


class DatabaseCollector(Collector):
    """Read the installation's metrics each time they are asked for."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the database."""
        return read_metrics()


# Our own registry: the library's default one adds metrics of this one process, of which a site has several.
REGISTRY = CollectorRegistry()
REGISTRY.register(DatabaseCollector())
REGISTRY.register(OPEN)


def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics. Raises Http404 for strangers."""
    if not _may_read(request):
        raise Http404
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(REGISTRY), content_type=content_type)


def _may_read(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        # A plain comparison would reveal by its duration how many characters match.
        return constant_time_compare(given, f"Bearer {settings.METRICS_TOKEN}")
    # Behind a proxy every request comes from this machine.
    return not settings.PROXIES and _is_local(request.META.get("REMOTE_ADDR", ""))


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
