"""Serve the probes of supervisors and load balancers: whether this process lives, and whether it can work."""

from __future__ import annotations

import shutil

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse

PATIENCE_S = 2.0
# PostgreSQL stops where there is no room for its next segment of the log of changes, which takes that much.
SPARE_BYTES = 16 * 2**20


def live(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the process answers at all; a supervisor restarts one that does not.

    Nothing else is asked, because an unavailable database is no reason to restart the pages.
    """
    return JsonResponse({"live": True})


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the database answers and 503 otherwise, without details that outsiders may not know."""
    database = _database_answers()
    return JsonResponse({"database": database}, status=200 if database else 503)


def ready(request: HttpRequest) -> JsonResponse:
    """Answer 200 when requests should be routed here, else 503.

    Checked are the database, the schema's version, Redis, and room on the disk. Pages work without Redis, live
    updates do not; on a full disk a database still answers and stores nothing.
    """
    database = _database_answers()
    found = {
        "database": database,
        "migrations": database and _is_migrated(),
        "redis": _redis_answers(),
        "disk": _disk_has_room(),
    }
    # The names of the failed checks tell an operator what to look at.
    return JsonResponse(found, status=200 if all(found.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _is_migrated() -> bool:
    """Return True when every migration of this version is applied."""
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


def _disk_has_room() -> bool:
    """Return whether there is room where the installation's own files are, the embedded database among them."""
    try:
        return shutil.disk_usage(settings.VAR.root).free >= SPARE_BYTES
    except OSError:
        return False
