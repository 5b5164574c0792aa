"""Map health probes and the local sign-in link; the optimizer maps everything else."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from kernelsci_site.collected import late_file
from kernelsci_site.health import healthz, live, ready
from kernelsci_site.metrics import metrics
from kernelsci_site.welcome import welcome

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("live", live, name="live"),
    path("ready", ready, name="ready"),
    path("metrics", metrics, name="metrics"),
    path("static/<path:path>", late_file, name="late_file"),
    path("welcome/<str:token>/", welcome, name="welcome"),
    path("", include("optimizer.urls")),
]
handler404 = "optimizer.views.absent.not_found"
