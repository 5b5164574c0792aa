"""Several people in several browsers: an author's approval does not count, and who is removed is out at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import BrowserContext, Page, expect

from optimizer.actions.release import do_ask_release
from optimizer.actions.review import Place, Words, do_publish_review, do_say
from optimizer.actions.team import do_invite, do_make_service_account, do_remove_member
from optimizer.models import AuthorKind, Kernel, Release, ReviewVerdict, Run, TeamRole, User
from tests.browser.axe import faults_of
from tests.driven_runs import make_driven_run, make_finished_run
from tests.factories import drive, make_run, make_team, make_user
from tests.optimizer.test_accounts import code_for

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]

PageAs = Callable[[User], Page]
Appearances = dict[str, list[str] | None]

STRONG = "a long and odd sentence 7"


@pytest.fixture
def page_as(new_context: Callable[[], BrowserContext], site: str) -> PageAs:
    """Return a function that opens a browser of the person's own, which the test's end closes."""

    def give(user: User) -> Page:
        client = Client()
        client.force_login(user)
        context = new_context()
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": site}])
        return context.new_page()

    return give


def test_the_approval_of_an_author_does_not_count(site: str, page_as: PageAs) -> None:
    team = make_team()
    author, first, second = (make_user(team, TeamRole.OPERATOR) for _ in range(3))
    run = make_finished_run(team, author)
    assert run.best_kernel is not None
    Kernel.objects.filter(pk=run.best_kernel.pk).update(author_kind=AuthorKind.PERSON, author=author)
    kernel = Kernel.objects.get(pk=run.best_kernel.pk)
    do_ask_release(author, kernel)
    drive(run)
    for person in (author, first):
        do_publish_review(person, run, kernel, ReviewVerdict.APPROVE)

    page = page_as(author)
    page.goto(f"{site}/runs/{run.pk}/kernels/{kernel.number}/release/")
    expect(page.get_by_text("1 of 2 approvals.")).to_be_visible()
    expect(page.get_by_text("you wrote this kernel")).to_be_visible()
    expect(page.get_by_role("button", name="Release", exact=True)).to_have_count(0)
    assert Release.objects.get().state == "asked"

    # the page follows the reviews by itself
    do_publish_review(second, run, kernel, ReviewVerdict.APPROVE)
    expect(page.get_by_text("Ready to release")).to_be_visible()
    page.get_by_role("button", name="Release", exact=True).click()
    expect(page.locator(".title-line .badge").first).to_have_text("Released")
    page.goto(f"{site}/releases/")
    expect(page.locator("main")).to_contain_text(f"{first}, {second}")


def test_a_removed_member_is_out_of_the_page_they_look_at(site: str, page_as: PageAs) -> None:
    team = make_team()
    owner, member = make_user(team, TeamRole.OWNER), make_user(team)
    run = make_driven_run(1, team, owner)
    watching, removed = page_as(owner), page_as(member)
    watching.goto(f"{site}/runs/{run.pk}/")
    removed.goto(f"{site}/runs/{run.pk}/")
    expect(watching.locator("#here")).to_have_text(f"Also here: {member}")
    expect(removed.locator("[data-connection]")).to_have_text("Live")
    do_remove_member(owner, team, member)
    expect(removed.locator("#run")).to_have_count(0)
    expect(watching.locator("#here")).to_have_text("")


def test_a_guest_joins_by_link_and_hears_of_a_mention_without_a_reload(
    site: str, new_context: Callable[[], BrowserContext]
) -> None:
    team = make_team()
    owner = make_user(team, TeamRole.OWNER)
    run = make_run(team, owner)
    _, token = do_invite(owner, team, TeamRole.REVIEWER, "Grace", 7)
    page = new_context().new_page()
    page.goto(f"{site}/join/{token}/")
    page.get_by_label("Username").fill("grace")
    page.get_by_label("Password", exact=True).fill(STRONG)
    page.get_by_label("Password confirmation").fill(STRONG)
    page.get_by_role("button", name="Create account and join").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(str(team))
    expect(page.locator(".bell b")).to_be_hidden()
    page.wait_for_timeout(500)
    do_say(owner, Place(run), Words("@grace, look at this."))
    expect(page.locator(".bell b")).to_have_text("1")
    page.get_by_role("link", name="Notifications, 1 unread").click()
    page.get_by_role("button", name="mentioned you").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(str(run))


def test_whoever_changes_their_password_stays_signed_in_while_its_socket_is_cut(site: str, page_as: PageAs) -> None:
    user = make_user(make_team())
    user.set_password(STRONG)
    user.save()
    page = page_as(user)
    page.goto(f"{site}/profile/password/")
    page.wait_for_timeout(500)
    for label in ("new_password1", "new_password2"):
        page.fill(f"#id_{label}", STRONG + "8")
    page.fill("#id_old_password", STRONG)
    page.get_by_role("button", name="Change the password").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(str(user))
    expect(page.locator("body")).to_contain_text("Password changed. All other browsers were signed out.")


@pytest.fixture
def owner(site: str) -> User:
    """Return the owner of a team with everything in it: an open invitation, a service account, a release, news, a
    log."""
    team = make_team()
    owner = make_user(team, TeamRole.OWNER)
    run = make_finished_run(team, owner)
    assert run.best_kernel is not None
    do_ask_release(owner, run.best_kernel)
    do_invite(owner, team, TeamRole.REVIEWER, "Grace", 7)
    do_make_service_account(owner, team, "ci", TeamRole.OPERATOR)
    do_say(make_user(team), Place(run), Words(f"@{owner}, look at this."))
    return owner


def team_and_account_pages(owner: User) -> list[str]:
    """Return the pages that show an owner more; `test_every_page.py` looks at those that are the same for everybody."""
    team, run = owner.teams.get(), Run.objects.get()
    assert run.best_kernel is not None
    service = team.members.get(username__contains="ci")
    return [
        f"/teams/{team.slug}/",
        f"/teams/{team.slug}/log/",
        f"/teams/{team.slug}/service-accounts/{service.pk}/tokens/",
        f"/runs/{run.pk}/kernels/{run.best_kernel.number}/release/",
        "/releases/",
        "/notifications/",
        "/profile/password/",
        "/profile/second-factor/",
        "/providers/new/",
    ]


# `make test` looks at these pages in light, `make e2e` in all appearances, as `test_every_page.py` does.
LIGHT: Appearances = {"light": None}
OTHERS: Appearances = {"dark": ["color-contrast"], "contrast": ["color-contrast"]}
in_appearances = pytest.mark.parametrize(
    "appearances",
    [pytest.param(LIGHT, id="light"), pytest.param(LIGHT | OTHERS, id="all", marks=pytest.mark.long)],
)


def faults_in(page: Page, appearances: Appearances) -> list[str]:
    """Return what axe finds by all its rules or by those named."""
    found = []
    for theme, rules in appearances.items():
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        found += [f"{page.url} in {theme}: {fault}" for fault in faults_of(page, rules)]
    return found


@pytest.mark.axe
@in_appearances
def test_axe_finds_nothing_serious_where_an_owner_looks_after_a_team_and_an_account(
    site: str, page_as: PageAs, owner: User, appearances: Appearances
) -> None:
    page, found = page_as(owner), []
    for address in team_and_account_pages(owner):
        answer = page.goto(site + address)
        assert answer is not None and answer.status == 200, address
        found += faults_in(page, appearances)
    assert "\n".join(found) == ""


@pytest.mark.axe
@in_appearances
def test_axe_finds_nothing_serious_from_an_invitation_to_a_second_factor(
    site: str, new_context: Callable[[], BrowserContext], appearances: Appearances
) -> None:
    team = make_team()
    _, token = do_invite(make_user(team, TeamRole.OWNER), team, TeamRole.REVIEWER, "Grace", 7)
    page = new_context().new_page()
    page.goto(f"{site}/join/{token}/")
    found = faults_in(page, appearances)
    page.get_by_label("Username").fill("grace")
    page.get_by_label("Password", exact=True).fill(STRONG)
    page.get_by_label("Password confirmation").fill(STRONG)
    page.get_by_role("button", name="Create account and join").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(str(team))
    page.goto(f"{site}/join/{token}/")
    found += faults_in(page, appearances)
    page.goto(f"{site}/profile/second-factor/on/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Is it you?")
    found += faults_in(page, appearances)
    page.get_by_label("Password").fill(STRONG)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Set up the second factor")
    found += faults_in(page, appearances)
    page.get_by_label("Code").fill(code_for(page.locator(".secret").inner_text()))
    page.locator("main form button").first.click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    found += faults_in(page, appearances)
    for address in ("", "codes/", "codes/new/", "off/"):
        page.goto(f"{site}/profile/second-factor/{address}")
        found += faults_in(page, appearances)
    page.context.clear_cookies()
    page.goto(f"{site}/sign-in/")
    page.get_by_label("Username").fill("grace")
    page.get_by_label("Password").fill(STRONG)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page).to_have_url(f"{site}/sign-in/code/")
    found += faults_in(page, appearances)
    assert "\n".join(found) == ""
