"""Provide what every test may ask for: a real PostgreSQL and a real Redis, started at the first test that needs them.

A suite that needs a program carries its mark; where the program is missing the suite is left out and named at the
end with the package to install. With CI=true leaving out is a failure, GPUs excepted.

`make test` runs two pytest processes (pytest-xdist). A file's tests stay in one process and in their order, so that
they share what is expensive; `split` parts a file whose tests share nothing. tests/parties.py says what may overlap.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
import redis
from django.conf import settings
from django.contrib.contenttypes.management import create_contenttypes
from django.core.cache import cache
from django.db.models.signals import post_migrate

from kernelsci_site.services import postgres, redis_server
from kernelsci_site.services.embedded import running_servers
from kernelsci_site.static_finders import NPM_FOLDER
from runners.doctor import hip_compiler, local_targets
from tests import left_to_ci, unchanged
from tests.browser.axe import AXE
from tests.browser.chromium import LAUNCH, PROGRAM, SHELL
from tests.flushing import use_deletes
from tests.leftovers import restored
from tests.parallel import GroupScheduling, spread, write_groups
from tests.parties import ORDINARY, TIMING, Place
from tests.rollback import rolled_back

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
# Imports and collected tests stay, so that collecting garbage among them is in vain.
gc.disable()
# Playwright's loop would make Django refuse its ORM in the same thread; these tests know what they do.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

# How fast examples are made says how busy the machine is, and nothing about the product.
hypothesis.settings.register_profile(
    "suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")

# mark → (whether it is here, what to install)
NEEDS: dict[str, tuple[bool, str]] = {
    "axe": (AXE.exists(), "npm, for axe-core: npm ci --prefix tests/browser"),
    "browser": (PROGRAM is not None, f"apt-get install {SHELL}"),
    "bubblewrap": (shutil.which("bwrap") is not None, "apt-get install bubblewrap"),
    "hip": (hip_compiler() is not None, "apt-get install clang-19 rocm-device-libs"),
    "npm": (NPM_FOLDER.exists(), "npm's registry, for scripts of pages: make install"),
    "uml": (shutil.which("linux.uml") is not None, "apt-get install user-mode-linux"),
    "nvcc": (shutil.which("nvcc") is not None, "the CUDA toolkit"),
    "gpu": (len(local_targets()) > 1, "a GPU"),
}
HARDWARE = {"gpu", "nvcc"}
# Marks and fixtures of tests that `--unit` leaves out.
BEYOND_UNITS = {"django_db", "evaluates", "processes", "site", "slow", "timing"}
SERVED = {"db", "servers", "transactional_db"}
HERE = Path(__file__).parent
TEST_VAR = Path(os.environ["KERNELSCI_TEST_VAR"])
IS_ONE_OF_SEVERAL = "PYTEST_XDIST_WORKER" in os.environ
STARTED_AT = pytest.StashKey[float]()
# The names of all tests that were collected, those included that are left out.
COLLECTED = pytest.StashKey[list[str]]()
PLACE = Place(TEST_VAR)
# What a server does so that a power cut loses nothing; the tests' data are gone with the run anyway.
HASTY = ("fsync", "synchronous_commit", "full_page_writes")
# Nor does it compile queries of tables that hold a handful of rows. Autovacuum would analyse tables whose rows have
# been rolled back and take them for empty: queries of a test that inserts thousands then took a minute.
NOT_WORTH_IT = ("jit", "autovacuum")
# The mark of tests that build, check and time kernels.
EVALUATES = "evaluates"
# Counts what `make test` leaves to CI.
TO_CI = "left to CI"
left_out: Counter[str] = Counter()
# For `--note-passed`: what the chosen tests depended on before they ran, and those that failed or were skipped.
DIGESTS: dict[str, str] = {}
not_passed: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`, `--long`, `--unit` and `--note-passed`, which is for one process and whole functions."""
    parser.addoption("--all", action="store_true", help="run what tests/left_to_ci.py names too, as CI does")
    parser.addoption("--long", action="store_true", help="run tests marked `long` or `unchanged` too")
    parser.addoption("--note-passed", action="store_true", help="keep what passed in tests/passed.json")
    parser.addoption("--unit", action="store_true", help="run only fast tests that need no other program")


def is_wanted(item: pytest.Item) -> bool:
    """Return whether the options ask for a test."""
    option = item.config.option
    if item.get_closest_marker("long") and not option.long:
        return False
    everything = IN_CI or option.all or option.long or option.unit or is_named(item.config)
    if not everything and left_to_ci.is_left(item.nodeid):
        left_out[TO_CI] += 1
        return False
    return is_unit(item) if item.config.getoption("--unit") else True


def repeats_itself(item: pytest.Item) -> bool:
    """Return whether a test would only repeat a result, and nobody asks for it by name or by `--long`."""
    return not is_named(item.config) and not item.config.option.long and unchanged.is_unchanged(item)


def is_named(config: pytest.Config) -> bool:
    """Return whether somebody asks for tests by name, mark or file."""
    option = config.option
    return bool(option.keyword or option.markexpr) or any("::" in one or one.endswith(".py") for one in config.args)


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test is fast and needs no server, browser, compiler or other process."""
    marked = any(mark.name in NEEDS or mark.name in BEYOND_UNITS for mark in item.iter_markers())
    return not marked and not SERVED & set(getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out what cannot run here, put the tests in order after pytest-django did, say which stay together."""
    config.stash[COLLECTED] = [item.nodeid for item in items]
    wanted = {item: is_wanted(item) for item in items}
    repeating = {item for item in items if wanted[item] and repeats_itself(item)}
    left_out[unchanged.MARK] += len(repeating)
    config.hook.pytest_deselected(items=[item for item in items if not wanted[item] or item in repeating])
    items[:] = [item for item in items if wanted[item] and item not in repeating]
    if config.getoption("--note-passed"):
        DIGESTS.update(unchanged.digests_of(items))
    for item in items:
        for mark, (is_here, package) in NEEDS.items():
            if not is_here and item.get_closest_marker(mark):
                left_out[mark] += 1
                item.add_marker(pytest.mark.skip(reason=f"needs {package}"))
    yield
    items.sort(key=order_of)
    early = [item for item in items if not comes_last(item)]
    evaluating = [item for item in early if item.get_closest_marker(EVALUATES)]
    others = [item for item in early if not item.get_closest_marker(EVALUATES)]
    items[:] = spread(evaluating, others, own_group_of) + items[len(early) :]
    refuse_commits_after_shared_rows(items)
    if IS_ONE_OF_SEVERAL:
        write_groups(TEST_VAR, {item.nodeid: own_group_of(item) for item in items})


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection: they live as long as the process.

    Until here nothing is garbage either, see `gc.disable` above.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out groups of tests. The process that does collects no tests, so it goes on as Python is used to."""
    gc.enable()
    scheduler = GroupScheduling(config, log)
    scheduler.folder = TEST_VAR
    return scheduler


def refuse_commits_after_shared_rows(items: Sequence[pytest.Item]) -> None:
    """Raise UsageError where a test that commits follows one that shares rows in its module.

    The transaction around the shared rows is still open then, and emptying the tables would wait for it for ever.
    """
    sharing: dict[Path, str] = {}
    for item in items:
        if "module_rows" in getattr(item, "fixturenames", ()):
            sharing.setdefault(item.path, item.name)
        elif commits(item) and item.path in sharing:
            raise pytest.UsageError(
                f"{item.nodeid} commits and comes after {sharing[item.path]}, which shares rows"
            )


def commits(item: pytest.Item) -> bool:
    """Return whether a test's rows are committed, so that the tables are emptied after it."""
    mark = item.get_closest_marker("django_db")
    asked = mark is not None and (mark.kwargs.get("transaction") or any(mark.args[:1]))
    return bool(asked or {"transactional_db", "live_server"} & set(getattr(item, "fixturenames", ())))


def own_group_of(item: pytest.Item) -> str:
    """Name the tests that stay in one process with this one; a test marked `split` is a group of its own."""
    return group_of(item) if item.get_closest_marker("split") is None else item.nodeid


def group_of(item: pytest.Item) -> str:
    """Name the tests of the same file that are run at the same stage, see `order_of`."""
    stage = [mark for mark in ("browser", TIMING, EVALUATES) if item.get_closest_marker(mark)]
    return "-".join([item.path.relative_to(HERE).with_suffix("").as_posix(), *stage])


def order_of(item: pytest.Item) -> tuple[bool, ...]:
    """Return the key by which tests are sorted; tests that are alike keep their order.

    Timings come late. Browsers come last, because Playwright leaves an event loop running in which no other test could
    start its own. What starts a whole site mostly waits, and comes first, beside tests that compute; then what is slow,
    then what starts programs, so that no process is left with it at the end. In a file, tests that share rows
    (`module_rows`) follow those that expect none. Evaluations are spread between the others afterwards.
    """
    last = [item.get_closest_marker(mark) is not None for mark in ("browser", TIMING)]
    first = [item.get_closest_marker(mark) is None for mark in ("site", "slow", "processes")]
    return (*last, *first, "module_rows" in getattr(item, "fixturenames", ()))


def comes_last(item: pytest.Item) -> bool:
    """Return whether a test follows those that may run beside anything."""
    return any(item.get_closest_marker(mark) for mark in ("browser", TIMING))


def party_of(item: pytest.Item) -> str:
    """Return the party of a test, see tests/parties.py."""
    return TIMING if item.get_closest_marker(TIMING) else ORDINARY


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run a test when tests of its kind may run, where several processes run tests."""
    if IS_ONE_OF_SEVERAL:
        PLACE.take(party_of(item))
    item.stash[STARTED_AT] = processor_s()
    try:
        return (yield)
    finally:
        if nextitem is None or party_of(nextitem) != party_of(item):
            PLACE.leave()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Note a test's processor time for the table of `make suite-time`, and whether it did not pass."""
    if call.excinfo is not None:
        not_passed.add(unchanged.function_of(item))
    if call.when == "teardown":
        item.user_properties.append(("processor_s", f"{processor_s() - item.stash[STARTED_AT]:.3f}"))


def processor_s() -> float:
    """Return the processor time of this process and of the children that it has waited for, in seconds."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over from a process what was left out, which is the same in each of them."""
    told = getattr(node, "workeroutput", {}).get("left_out", {})  # not of a process that died
    left_out.update({mark: count - left_out[mark] for mark, count in told.items()})


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line for each suite that was left out."""
    for mark, count in sorted((+left_out).items()):
        terminalreporter.write_line(line_of(mark, count))


def line_of(mark: str, count: int) -> str:
    """Return the line that says how many tests were left out and why."""
    if mark == TO_CI:
        return f"{TO_CI}: {count} tests (tests/left_to_ci.py); make test-all runs them too"
    why = f"they need {NEEDS[mark][1]}" if mark in NEEDS else "nothing they read has changed since they passed"
    return f"left out: {count} tests marked {mark}; {why}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in CI when a suite was left out for want of a package; keep what passed if `--note-passed` asks for it."""
    option = session.config.option
    if option.note_passed and session.exitstatus == pytest.ExitCode.OK and not option.collectonly:
        unchanged.write(DIGESTS, not_passed)
    if IS_ONE_OF_SEVERAL:
        session.config.workeroutput["left_out"] = dict(left_out)  # type: ignore[attr-defined]
    if IN_CI and set(left_out) & set(NEEDS) - HARDWARE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """Run both servers, unless DATABASE_URL or REDIS_URL name others. What we start spares itself the disk."""
    own_postgres, own_redis = not settings.DATABASE_URL, not settings.REDIS_URL
    with running_servers(settings.VAR, postgres=own_postgres, redis=own_redis):
        if own_postgres:
            make_hasty(postgres.embedded_url(settings.VAR))
        if own_redis:
            with redis.Redis.from_url(redis_server.embedded_url(settings.VAR)) as client:
                client.config_set("appendfsync", "no")
        yield


def make_hasty(address: str) -> None:
    """Have a PostgreSQL server wait for no disk and plan no further than a test needs."""
    with psycopg.connect(address, autocommit=True) as connection:
        for name in (*HASTY, *NOT_WORTH_IT):
            connection.execute(f"ALTER SYSTEM SET {name} = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def module_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let module-scoped fixtures make rows that every test of the module finds as they were made.

    The rows lie in a transaction around the tests' own, rolled back after the last of them; pytest-django leaves its
    connection open between tests for this. Not for modules with tests that commit (`transaction=True`).
    """
    with django_db_blocker.unblock(), rolled_back():
        yield


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> Iterator[None]:
    """Fail the module that changes what all tests of a process share, see tests/leftovers.py."""
    with restored():
        yield


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    """Clear the cache, so that failed sign-ins of one test slow no other down."""
    cache.clear()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(servers: None) -> None:
    """Start the servers when pytest-django asks for this, which is before it creates the test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """Have nobody write permissions and content types again after a test that commits, and rows deleted then.

    The former takes a hundred queries, more than most of these tests, and nothing of ours reads them.
    """
    use_deletes()
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Start the system's Chromium, quietly."""
    return {**browser_type_launch_args, **LAUNCH}


def pytest_unconfigure() -> None:
    """Remove the process's folder, and the run's with the first one. Servers are down: fixtures end before this."""
    shutil.rmtree(settings.VAR.root, ignore_errors=True)
    shutil.rmtree(settings.VAR.socket_folder, ignore_errors=True)
    if not IS_ONE_OF_SEVERAL:
        shutil.rmtree(TEST_VAR, ignore_errors=True)
