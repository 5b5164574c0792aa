"""Two addresses for supervisors and load balancers: whether this process lives, and whether it can do its work."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse

PATIENCE_S = 2.0


def live(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all: who gets none restarts it. Asks nobody else, for a database that is away
    is no reason to restart the pages."""
    return JsonResponse({"live": True})


def healthz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers, 503 when it does not. Says nothing that an outsider may not know."""
    database = _database_answers()
    return JsonResponse({"database": database}, status=200 if database else 503)


def ready(request: HttpRequest) -> JsonResponse:
    """200 when requests should come here, else 503: the database answers, its tables are those of this version, and
    Redis answers. Pages work without Redis, live updates do not."""
    database = _database_answers()
    found = {"database": database, "migrations": database and _is_migrated(), "redis": _redis_answers()}
    return JsonResponse(found, status=200 if all(found.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _is_migrated() -> bool:
    """True when every migration of this version is applied."""
    try:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return False


def _redis_answers() -> bool:
    limits = {"socket_timeout": PATIENCE_S, "socket_connect_timeout": PATIENCE_S}
    try:
        with redis.Redis.from_url(settings.REDIS_SERVER_URL, **limits) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
