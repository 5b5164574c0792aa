"""Test search, lineage, leaderboards, knowledge, tuned parameters, reports and submissions."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from optimizer.actions.finding import FindingSupersededError, do_edit_finding, do_write_finding
from optimizer.calls.prepare import knowledge_of
from optimizer.models import Evaluation, Finding, Hypothesis, Kernel, Problem, Run, Target, Team, TeamRole, User
from optimizer.queries import fulltext
from optimizer.queries.fulltext import EXCERPT, pieces_of, query_of, search
from optimizer.queries.leaderboard import leaders_by_target, leaders_of, published_for, published_suites
from optimizer.queries.lineage import best_path, layout, tree_of
from optimizer.queries.parameter_importance import TrialGroup, TunedTrial, importances, spaces_of
from optimizer.reports.facts import facts_of
from optimizer.reports.html import html_report
from optimizer.reports.markdown import markdown_report, plain
from optimizer.reports.submission import NoSubmissionError, patch_against_seed, submission
from tests.factories import make_kernel, make_run, make_team, make_user, store_problems_and_targets

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def run(finished: Run) -> Run:
    """Return a run that has gone to its end, as every run here has."""
    return finished


def best_of(run: Run) -> Kernel:
    assert run.best_kernel is not None
    return run.best_kernel


def time_us_of(kernel: Kernel) -> float:
    assert kernel.evaluation.time_us is not None
    return kernel.evaluation.time_us


def addresses(run: Run) -> list[str]:
    number = run.best_kernel.number if run.best_kernel else 0
    return [
        reverse("lineage", args=[run.pk]),
        reverse("lineage_data", args=[run.pk]),
        reverse("tuned", args=[run.pk]),
        reverse("tuned_chart", args=[run.pk, "parallel"]),
        reverse("run_export", args=[run.pk]),
        reverse("run_report", args=[run.pk, "html"]),
        reverse("run_report", args=[run.pk, "md"]),
        reverse("kernel_submission", args=[run.pk, number, "native"]),
        reverse("kernel_patch", args=[run.pk, number]),
    ]


# who sees what


def test_a_member_sees_every_page_about_a_run(pages: Client, run: Run) -> None:
    for address in addresses(run):
        assert pages.get(address).status_code == 200, address


def test_an_outsider_sees_none_of_them(client: Client, run: Run) -> None:
    client.force_login(make_user(make_team()))
    for address in addresses(run):
        assert client.get(address).status_code == 404, address


def test_a_stranger_is_sent_to_the_sign_in(client: Client, run: Run) -> None:
    names = ("search", "leaderboards", "knowledge", "finding_new", "tokens", "webhooks", "api_page")
    for address in [*addresses(run), *(reverse(name) for name in names)]:
        assert client.get(address).headers["Location"].startswith("/sign-in/"), address


# search


def found(user: User, text: str) -> set[str]:
    return {hit.title for hits in search(user, text).values() for hit in hits}


def named(run: Run, title: str, source: str = "int main;") -> Kernel:
    return make_kernel(run, source, title=title)


def test_a_kernel_is_found_by_a_word_of_its_source_and_by_the_beginning_of_one(run: Run, member: User) -> None:
    kernel = named(run, "Tiles", "// swizzled against bank conflicts\n")
    for text in ("swizzled", "swizz", "bank conflicts", '"bank conflicts"', "conflicts -prefetch"):
        assert str(kernel) in found(member, text), text
    assert found(member, "conflicts -bank") == set()


@pytest.mark.parametrize("text", ["naïve", "naï", "Ωdd", "ünïcödé", "核"])
def test_a_word_with_other_letters_is_found_wherever_they_stand_in_it(run: Run, member: User, text: str) -> None:
    kernel = named(run, "Tiles", "// naïve Ωdd ünïcödé 核\n")
    assert str(kernel) in found(member, text)


def test_words_in_a_title_come_before_newer_hits_elsewhere(run: Run, member: User) -> None:
    titled = named(run, "Swizzle")
    named(run, "Other", "// swizzle\n")
    assert search(member, "swizzle")["kernel"][0].title == str(titled)


def test_a_rare_word_is_found_however_far_back_and_of_a_common_one_the_newest(
    run: Run, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext, "RECENT", 3)
    monkeypatch.setattr(fulltext, "RANKED", 4)
    rows = [named(run, "Zirconium" if n == 1 else f"Tile {n}", "// swizzled\n" if n % 2 else "") for n in range(20)]
    assert [hit.title for hit in search(member, "zirconium")["kernel"]] == [str(rows[1])]
    newest = [str(rows[n]) for n in (19, 17, 15, 13)]
    assert [hit.title for hit in search(member, "swizzled", limit=4)["kernel"]] == newest
    assert len(search(member, "swizzled", limit=10)["kernel"]) == 10
    hidden = make_run(run.team, make_user(run.team), is_private=True)
    for n in range(6):
        named(hidden, f"Hidden {n}", "// swizzled\n")
    assert [hit.title for hit in search(member, "swizzled", limit=4)["kernel"]] == newest


def test_a_finding_without_a_title_is_named_by_its_text_without_the_marks_of_a_heading(team: Team) -> None:
    assert str(Finding(text="# Tiles\nWide ones.")).startswith("Tiles")
    assert str(Finding(title="## Notes", text="x")) == "Notes"
    assert str(Finding(title="#pragma unroll helps", text="x")) == "#pragma unroll helps"


def test_boards_of_all_targets_are_those_of_each_and_take_three_queries(
    team: Team, member: User, django_assert_num_queries: Any
) -> None:
    store_problems_and_targets()
    for key, baselines in (("cpu", "aab"), ("sm_90", "b")):
        for n, baseline in enumerate(baselines):
            started = make_run(team, member, target=Target.objects.get(key=key))
            kernel = named(started, f"best {n}")
            Evaluation.objects.create(
                kernel=kernel, first_of=kernel, target=started.target, effort="full", state="done", status="correct",
                time_us=9.0,
            )  # fmt: skip
            Run.objects.filter(pk=started.pk).update(
                baseline=baseline, best_kernel=kernel, best_speedup=2.0 + n, best_speedup_low=1.9 + n,
                best_speedup_high=2.1 + n,
            )  # fmt: skip
    problem = Problem.objects.get(slug="softmax_rows")
    with django_assert_num_queries(3):
        found = leaders_by_target(member, problem, 1)
    assert found == {
        target.pk: leaders_of(member, problem, target, 1)
        for target in Target.objects.filter(key__in=["cpu", "sm_90"])
    }
    assert [len(leaders) for leaders in found.values()] in ([2, 1], [1, 2])


def test_an_outsider_finds_nothing_of_ours(run: Run, team: Team, member: User) -> None:
    named(run, "Zirconium tiles")
    Hypothesis.objects.create(run=run, key="h", kind="experiment", title="Zirconium helps")
    do_write_finding(member, team, "Zirconium", "Zirconium is fast.")
    assert len(found(member, "zirconium")) == 3
    assert found(make_user(make_team()), "zirconium") == set()


def test_a_private_run_is_found_by_its_starter_and_the_owners_only(team: Team, member: User) -> None:
    hidden = make_run(team, member, title="Zirconium", is_private=True)
    assert str(hidden) in found(member, "zirconium")
    assert str(hidden) in found(make_user(team, TeamRole.OWNER), "zirconium")
    assert found(make_user(team), "zirconium") == set()


@pytest.mark.parametrize(
    "text",
    ["", "  ", "-", "!!", "&|:*", "a\x00b", "'; DROP TABLE", "the", "x" * 5000, '"', "-x", "²", "x²", "a_b_", "٣"],
)
def test_no_question_breaks_the_search(member: User, text: str) -> None:
    assert isinstance(search(member, text), dict)


def test_a_question_of_marks_alone_looks_for_nothing() -> None:
    assert query_of("!? -") is None


def test_an_excerpt_shows_the_words_around_a_match_and_marks_every_form_of_it(run: Run, member: User) -> None:
    filler = "".join(f"int row_{n} = {n};\n" for n in range(200))
    named(run, "Other", f"{filler}auto x = static_cast<float>(tiled(y));  // swizzled tiles\n{filler}")
    (hit,) = search(member, "tile swizz")["kernel"]
    assert "static_cast<float>(tiled(y)); // swizzled tiles" in hit.excerpt
    assert "row_7 " not in hit.excerpt
    assert {piece.text for piece in hit.pieces if piece.marked} == {"tiled", "swizzled", "tiles"}


def test_a_long_word_and_marks_in_a_text_leave_a_short_clean_excerpt() -> None:
    pieces = list(pieces_of(f"\x03a\n \x02b\x03 {'x' * 10_000}"))
    assert [(piece.text, piece.marked) for piece in pieces[:2]] == [("a ", False), ("b", True)]
    assert sum(len(piece.text) for piece in pieces) == EXCERPT


def test_what_is_found_is_escaped(pages: Client, run: Run) -> None:
    named(run, SCRIPT, f"// zirconium {SCRIPT}\n")
    text = pages.get(reverse("search"), {"q": "zirconium"}).content.decode()
    assert SCRIPT not in text
    assert "&lt;script&gt;" in text


# lineage


def test_a_parent_stands_in_the_middle_of_its_children_and_no_two_leaves_share_a_row() -> None:
    places = layout(range(6), {1: 0, 2: 0, 3: 1, 4: 1, 5: 2})
    assert [places[n][0] for n in range(6)] == [0, 1, 1, 2, 2, 2]
    assert places[1][1] == (places[3][1] + places[4][1]) / 2
    assert places[0][1] == (places[1][1] + places[2][1]) / 2
    assert sorted(places[n][1] for n in (3, 4, 5)) == [0, 1, 2]


def test_a_chain_of_thousands_is_laid_out() -> None:
    places = layout(range(5000), {n: n - 1 for n in range(1, 5000)})
    assert places[4999] == (4999, 0)


def test_the_best_path_leads_back_to_the_seed() -> None:
    assert best_path(4, {4: [2, 3], 2: [0]}) == {4, 2, 0}
    assert best_path(None, {}) == set()


def test_the_tree_marks_the_best_path_and_who_wins_each_case(run: Run) -> None:
    tree = tree_of(run)
    assert tree.best == best_of(run).number
    assert {node.number for node in tree.nodes if node.on_best_path} >= {tree.best}
    fastest = min(run.kernels.filter(evaluation__time_us__isnull=False), key=time_us_of)
    assert [node.number for node in tree.nodes if node.wins] == [fastest.number]


def test_the_tree_takes_as_many_queries_for_forty_kernels_as_for_four(
    run: Run, django_assert_max_num_queries: object
) -> None:
    for _ in range(40):
        named(run, "more")
    with django_assert_max_num_queries(4):  # type: ignore[operator]
        assert len(tree_of(run).nodes) > 40


def test_a_run_without_kernels_says_what_to_do(pages: Client, team: Team, member: User) -> None:
    empty = make_run(team, member)
    for name in ("lineage", "tuned", "run_export"):
        assert pages.get(reverse(name, args=[empty.pk])).status_code == 200, name
    assert "runner" in pages.get(reverse("lineage", args=[empty.pk])).content.decode()


# leaderboards


def test_the_leaderboard_shows_only_what_one_may_see(run: Run, member: User) -> None:
    problem, target = run.problem_version.problem, run.target
    assert [leader.run for leader in leaders_of(member, problem, target)] == [run.pk]
    assert leaders_of(make_user(make_team()), problem, target) == []


def test_published_figures_name_hardware_and_source_and_stand_fastest_first() -> None:
    rows = published_for("fp8_block_gemm", "gfx942")
    assert [row.time_us for row in rows] == sorted(row.time_us for row in rows) != []
    assert all(row.hardware and row.source for row in rows)
    assert published_for("fp8_block_gemm", "cpu") == published_for("softmax_rows", "gfx942") == []
    assert all(suite.hardware and suite.source for suite in published_suites())


def test_a_leaderboard_says_that_published_figures_were_not_measured_here(pages: Client, run: Run) -> None:
    text = pages.get(reverse("leaderboard", args=["fp8_block_gemm", "gfx942"])).content.decode()
    assert "not measured here" in text and "arXiv 2506.20807" in text


# knowledge


def test_an_edit_supersedes_and_prompts_read_the_newer_text_alone(run: Run, team: Team, member: User) -> None:
    older = do_write_finding(member, team, "Caches", "L2 holds 1 MiB.", target=run.target)
    newer = do_edit_finding(member, older, "Caches", "L2 holds 2 MiB.")
    texts = [item.text for item in knowledge_of(run)]
    assert newer.text in texts and older.text not in texts
    assert newer.target == older.target
    with pytest.raises(FindingSupersededError):
        do_edit_finding(member, older, "Caches", "L2 holds 3 MiB.")


def test_the_history_shows_every_version_and_what_it_changed(pages: Client, team: Team, member: User) -> None:
    older = do_write_finding(member, team, "Caches", "L2 holds 1 MiB.")
    newer = do_edit_finding(member, older, "Caches", "L2 holds 2 MiB.")
    for row in (older, newer):
        text = pages.get(reverse("finding_page", args=[row.pk])).content.decode()
        assert "− L2 holds 1 MiB." in text and "+ L2 holds 2 MiB." in text


def test_a_viewer_cannot_edit_a_finding_and_an_outsider_cannot_read_it(
    client: Client, team: Team, member: User
) -> None:
    row = do_write_finding(member, team, "Caches", "L2 holds 1 MiB.")
    edit = reverse("finding_edit", args=[row.pk])
    client.force_login(make_user(team, TeamRole.VIEWER))
    assert client.post(edit, {"title": "x", "text": "y"}).status_code == 404
    client.force_login(make_user(make_team()))
    assert client.get(reverse("finding_page", args=[row.pk])).status_code == 404
    assert Finding.objects.filter(superseded_by=None, team=team).get() == row


def test_a_member_edits_what_ships_with_the_product_not_at_all(pages: Client) -> None:
    shipped = Finding.objects.create(text="MI300 has 304 units.", origin="shipped")
    assert pages.get(reverse("finding_page", args=[shipped.pk])).status_code == 200
    assert pages.post(reverse("finding_edit", args=[shipped.pk]), {"title": "x", "text": "y"}).status_code == 404


def test_a_finding_is_written_through_the_page(pages: Client, team: Team) -> None:
    answer = pages.post(reverse("finding_new"), {"team": team.slug, "title": "Caches", "text": f"**L2** {SCRIPT}"})
    text = pages.get(answer.headers["Location"]).content.decode()
    assert "<strong>L2</strong>" in text and SCRIPT not in text


# tuned parameters


def trials(*times: tuple[int, int, float]) -> TrialGroup:
    return TrialGroup(
        ("A", "B"), [TunedTrial(n, {"A": a, "B": b}, time, None) for n, (a, b, time) in enumerate(times)]
    )


def test_a_parameter_that_decides_everything_is_the_important_one() -> None:
    rows = importances(trials(*((a, b, 10.0 * a + 0.01 * b) for a in (1, 2, 4) for b in (1, 2, 3))))
    assert rows[0].name == "A" and rows[0].share > 0.99 and rows[0].best == 1
    assert rows[1].name == "B" and rows[1].share < 0.01


def test_four_trials_say_nothing_and_equal_times_blame_nobody() -> None:
    assert importances(trials(*((1, n, 5.0) for n in range(4)))) == []
    assert {row.share for row in importances(trials(*((n % 2, n, 5.0) for n in range(8))))} == {0.0}


def test_the_page_lists_the_trials_of_a_tuned_run(pages: Client, run: Run) -> None:
    space = spaces_of(run)[0]
    text = pages.get(reverse("tuned", args=[run.pk])).content.decode()
    assert all(name in text for name in space.names)


# reports and submissions


def test_the_report_is_one_file_without_scripts_or_addresses_of_others(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(title=SCRIPT)
    run.refresh_from_db()
    text = html_report(facts_of(run))
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r"""(src|href)=["']?https?:""", text)
    assert "<svg" in text


def test_the_markdown_report_lets_nothing_of_others_become_markup(run: Run) -> None:
    Kernel.objects.filter(pk=best_of(run).pk).update(title="a | b *c* ![x](http://evil)", source="```\n# x\n")
    run = Run.objects.get(pk=run.pk)
    text = markdown_report(facts_of(run))
    assert "![x](http" not in text and "a \\| b" in text
    assert "````cpp\n```\n# x\n````" in text


@settings(max_examples=400, deadline=None)
@given(st.text(st.sampled_from("a1 _*`~#+-=.):|<>&![](){}\\@/\n"), min_size=1, max_size=24))
def test_a_text_in_a_report_is_read_as_that_very_text(text: str) -> None:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = reader.parse(plain(text))
    assert [token.type for token in tokens] in ([], ["paragraph_open", "inline", "paragraph_close"])
    children = [child for token in tokens for child in token.children or []]
    assert {child.type for child in children} <= {"text"}
    assert "".join(child.content for child in children) == " ".join(text.split())


def test_addresses_mentions_and_issues_in_a_report_are_no_links_and_words_are_left_alone() -> None:
    assert plain("https://a.b www.c.d e@f.g #12 :tada:") == r"https\://a.b www\.c.d e\@f.g \#12 \:tada:"
    usual = "layernorm_residual on Intel(R) Xeon(R): 1.31x, -5 % in 10:20 minutes"
    assert plain(usual) == usual


def test_a_report_of_a_run_without_kernels_says_so(team: Team) -> None:
    empty = make_run(team)
    assert "No correct kernel was timed" in html_report(facts_of(empty))
    assert "No correct kernel was timed" in markdown_report(facts_of(empty))


def test_a_native_submission_defines_what_the_tuner_found(run: Run) -> None:
    kernel = run.kernels.exclude(tunables={}).filter(language="cpp").first()
    assert kernel is not None
    text = submission(kernel, "native").text
    for name, value in kernel.tunables.items():
        assert f"#ifndef {name}\n#define {name} {int(value) if isinstance(value, bool) else value}\n" in text
    assert text.endswith(kernel.source)


def test_a_python_kernel_of_our_own_problem_becomes_a_gpu_mode_submission(run: Run) -> None:
    source = "def custom_kernel(x, y, rows, cols):\n    return x\n"
    kernel = named(run, "python", source)
    Kernel.objects.filter(pk=kernel.pk).update(language="python")
    kernel.refresh_from_db()
    made = submission(kernel, "gpumode")
    assert made.name == "submission.py" and source in made.text and "def custom_kernel(data)" in made.text


def test_a_cpp_kernel_becomes_a_guarded_modelnew(run: Run) -> None:
    made = submission(best_of(run), "kernelbench")
    assert made.name.endswith(".py") and "class ModelNew(nn.Module)" in made.text
    assert compile(made.text, made.name, "exec")


def test_a_package_holds_the_kernel_its_guards_and_its_measurement(run: Run) -> None:
    made = submission(best_of(run), "package")
    packed = zipfile.ZipFile(io.BytesIO(made.data))
    named = {name.split("/", 1)[1]: name for name in packed.namelist()}
    problem = run.problem_version.as_bundle().name
    told = json.loads(packed.read(named[f"src/{problem}/provenance.json"]))
    assert told["kernel"]["content_hash"] == best_of(run).as_source().content_hash
    assert told["measured"]["status"] == "correct"
    assert f"src/{problem}/_runtime/kernel.py" in named and "pyproject.toml" in named


def test_a_package_is_downloaded_as_an_archive(pages: Client, run: Run) -> None:
    answer = pages.get(reverse("kernel_submission", args=[run.pk, best_of(run).number, "package"]))
    assert answer["Content-Type"] == "application/zip" and answer["Content-Disposition"].endswith('.zip"')


def test_the_page_of_exports_lists_every_format(pages: Client, run: Run) -> None:
    text = pages.get(reverse("run_export", args=[run.pk])).content.decode()
    assert all(
        label in text for label in ("Python package", "Hugging Face kernels", "flashinfer-bench", "ModelNew")
    )


def test_an_unknown_format_is_not_found(pages: Client, run: Run) -> None:
    with pytest.raises(NoSubmissionError):
        submission(best_of(run), "nonsense")
    address = reverse("kernel_submission", args=[run.pk, best_of(run).number, "nonsense"])
    assert pages.get(address).status_code == 404


def test_the_patch_turns_the_seed_into_the_kernel(run: Run, tmp_path: object) -> None:
    import shutil
    import subprocess

    if shutil.which("patch") is None:
        pytest.skip("needs patch")
    seed, kernel = named(run, "old", "one\ntwo\nthree"), named(run, "new", "one\n2\nthree\n")
    (tmp_path / "kernel.cpp").write_text(seed.source)  # type: ignore[operator]
    patch = patch_against_seed(kernel, seed)
    subprocess.run(["patch", "-p1"], input=patch, text=True, cwd=str(tmp_path), check=True, capture_output=True)
    assert (tmp_path / "kernel.cpp").read_text() == kernel.source  # type: ignore[operator]


# synthetic load


def test_synthetic_runs_are_marked_and_their_pages_work(client: Client) -> None:
    User.objects.create_superuser("admin")
    call_command("load_scale", runs=5, kernels=40, samples=400, campaign=0)
    runs = list(Run.objects.all())
    assert len(runs) == 5 and all(
        run.title.startswith("Synthetic") and run.team.slug == "synthetic" for run in runs
    )
    assert Kernel.objects.count() == 40
    client.force_login(User.objects.get())
    run = max(runs, key=lambda one: one.spent_evaluations)
    for address in [*addresses(run), reverse("run_page", args=[run.pk]), reverse("kernel_page", args=[run.pk, 1])]:
        assert client.get(address).status_code == 200, address
    call_command("load_scale", runs=2, kernels=4, samples=40, campaign=0)
    assert Run.objects.count() == 7


def test_synthetic_runs_are_not_loaded_beside_real_ones_unasked(run: Run) -> None:
    User.objects.create_superuser("admin")
    with pytest.raises(CommandError, match="real runs"):
        call_command("load_scale", runs=1, kernels=1, samples=10, campaign=0)
    call_command("load_scale", "--beside-real-runs", runs=1, kernels=1, samples=10, campaign=0)
    assert Run.objects.count() == 2


def test_synthetic_rows_take_no_primary_key_that_another_row_had(run: Run) -> None:
    User.objects.create_superuser("admin")
    removed = named(run, "removed")
    last_key = removed.pk
    removed.delete()
    call_command("load_scale", "--beside-real-runs", runs=1, kernels=1, samples=10, campaign=0)
    synthetic = Kernel.objects.exclude(run=run).get()
    assert last_key < synthetic.pk < named(run, "next").pk


def test_every_problem_has_a_leaderboard_page(pages: Client, run: Run) -> None:
    for problem in Problem.objects.all():
        for target in Target.objects.all()[:2]:
            assert pages.get(reverse("leaderboard", args=[problem.slug, target.key])).status_code == 200


@pytest.mark.parametrize(("name", "most"), [("run_page", 26), ("lineage", 14), ("kernel_page", 20), ("tuned", 11)])
def test_pages_take_no_more_queries_than_they_did(
    pages: Client, run: Run, name: str, most: int, django_assert_max_num_queries: object
) -> None:
    for _ in range(30):
        named(run, "more")
    arguments = [run.pk, 1] if name == "kernel_page" else [run.pk]
    with django_assert_max_num_queries(most):  # type: ignore[operator]
        assert pages.get(reverse(name, args=arguments)).status_code == 200


@pytest.mark.parametrize(("address", "most"), [("/search/?q=softmax", 45), ("/runs/", 14), ("/leaderboards/", 10)])
def test_lists_take_no_more_queries_than_they_did(
    pages: Client, run: Run, address: str, most: int, django_assert_max_num_queries: object
) -> None:
    with django_assert_max_num_queries(most):  # type: ignore[operator]
        assert pages.get(address).status_code == 200
