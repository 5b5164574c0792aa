"""Serve `/metrics` in Prometheus's text format (version 0.0.4).

The values are read from the database on request, so that any number of processes agree; only the count of sockets is
that of the answering process.

With KERNELSCI_METRICS_TOKEN set, whoever sends it as a bearer token may read. Without one, only this machine may, and
behind a proxy nobody, as every request comes from this machine there. Others get a 404.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare

from kernelsci_site.sockets import open_sockets
from optimizer.queries.metrics import Metric, read_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics. Raises Http404 for strangers."""
    if not _may_read(request):
        raise Http404
    sockets = Metric("sockets_open", "gauge", "Websockets open in the answering process.", [({}, open_sockets())])
    text = "".join(line for metric in [*read_metrics(), sockets] for line in _lines(metric))
    return HttpResponse(text, content_type=CONTENT_TYPE)


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


def _lines(metric: Metric) -> Iterator[str]:
    name = f"kernelsci_{metric.name}"
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for labels, value in metric.samples:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{told}}} {float(value):.10g}\n" if told else f"{name} {float(value):.10g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
