"""Run the embedded servers alone, without workers and pages, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kernelsci_site.services.part import Child, Part
from kernelsci_site.services.postgres import EmbeddedPostgres
from kernelsci_site.services.redis_server import EmbeddedRedis
from kernelsci_site.services.var import Var


def server_parts(var: Var, *, postgres: bool = True, redis: bool = True) -> list[Part]:
    """Return the servers that this installation must run itself, in starting order. Raises `NoServerError`."""
    parts = []
    if postgres:
        parts.append(EmbeddedPostgres(var).part())
    if redis:
        parts.append(EmbeddedRedis(var).part())
    return parts


@contextmanager
def running_servers(var: Var, *, postgres: bool = True, redis: bool = True) -> Iterator[list[Child]]:
    """Start the servers, yield once they answer, and stop them at the end. Their output goes to `var/log`."""
    with ExitStack() as stack:
        children = []
        for part in server_parts(var, postgres=postgres, redis=redis):
            log = stack.enter_context((var.folder("log") / f"{part.name}.log").open("ab"))
            child = part.start(log)
            stack.callback(child.stop)
            children.append(child)
        for child in children:
            child.wait_until_ready()
        yield children
