"""Name the tests that `make test` leaves to CI, which runs all tests at every change, as `make test-all` does.

`make test` is for whoever works on the product and should end within twelve minutes on two cores. What it leaves out
costs seconds a test. Each entry says what `make test` keeps of the kind; where an entry names what nothing else shows,
it says so, and CI alone shows it. A test that is asked for by name or file runs wherever it is listed, and so do all
with `--long`. No unit test is left out by `--unit`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """Name tests of one file below `tests` by a pattern at the start of their names, and say what is kept instead."""

    file: str
    names: str
    kept: str

    def holds(self, nodeid: str) -> bool:
        """Return whether the entry names this test."""
        file, _, name = nodeid.partition("::")
        return file == f"tests/{self.file}" and re.match(self.names, name) is not None


LEFT = (
    # A browser takes three to ten seconds a test.
    Left("browser/test_every_page.py", r".*chromium-[0-3]\]", "all pages without a browser; CI alone: widths, axe"),
    Left(
        "browser/test_every_page.py", r"test_(a_range|without)", "addresses of lines, pages without scripts: views"
    ),
    Left(
        "browser/test_run_live.py",
        r"test_(where_sockets|a_link_that|a_page_whose|the_feed_has|pause_resume|a_button|live)",
        "a run from sign-in to its best kernel; CI alone: updates that move nothing, polling, lost connections",
    ),
    Left(
        "browser/test_review.py",
        r"test_(diffs_with|guidance|a_thread|who_else|without|dragging|folded|code_has|a_click|keys|a_draft)",
        "a suggested edit",
    ),
    Left("browser/test_dashboard.py", "", "the same pages without a browser; CI alone: their scripts"),
    Left("browser/test_people.py", r"test_(axe|the_approval|a_removed|whoever)", "a guest who joins"),
    Left("browser/test_finish_runs.py", "", "the same pages without a browser"),
    Left("browser/test_explore.py", r"test_the_tree", "the palette; CI alone: the tree"),
    Left("browser/test_first_run.py", r"test_a_refused", "a stranger's way to a run of their own module"),
    Left("browser/test_prediction.py", "", "the same pages without a browser"),
    Left("site/test_company_sign_in.py", r"test_a_browser", "the same sign-in by a client without a browser"),
    # Starts of sites and programs.
    Left(
        "site/test_up.py",
        r"test_(an_ordinary|a_killed_part|a_killed_worker|a_second)",
        "a start as root, a killed supervisor; CI alone: the pool of a killed worker",
    ),
    Left(
        "site/test_surroundings.py",
        r"test_(a_port.*-1|ports|a_folder.*that)",
        "another port, a folder without room",
    ),
    Left("site/test_services.py", r"test_(.*wheel|root_without|.*killed_half)", "the system's servers"),
    Left(
        "site/test_install.py",
        r"test_(torch|a_package|what_has|a_machine|pip_tries)",
        "the installer's other choices",
    ),
    Left("site/test_settings.py", r"test_workers_are", "that torch stays out of pages and workers"),
    Left(
        "site/test_squashed_migrations.py",
        "",
        "the tables that every other test finds; CI alone: that they are those of an upgraded site",
    ),
    Left("site/test_fresh.py", r"test_a_package_starts", "a start without a database of time zones"),
    Left("runners/test_mcp.py", r"test_official", "the server's answers; the site's server by the same client"),
    Left("optimizer/test_killed_worker.py", "", "faults of the short chaos, which kill such workers too"),
    Left("runners/test_receipts.py", r"test_receipt_is_made", "receipts by the same functions"),
    # `make check` looks at these after every change.
    Left("site/test_code.py", r".*\[types\]", "style and imports; types by `make check`"),
    Left("site/test_environment.py", "", "`make check`"),
    Left("site/test_language.py", "", "`make check`"),
    Left("site/test_structure.py", "", "`make check`"),
    # Made-up inputs, and texts that are measured.
    Left("site/test_fuzz_api.py", "", "nothing; CI alone: made-up requests, nested and huge bodies"),
    Left("site/test_event_loop.py", r".*\[(search of|suggested|comment|preview)", "the search of pages"),
    Left("site/test_mcp_http.py", r"test_(agent_that|other_hosts)", "an agent's whole run; the API's own refusals"),
    Left("site/test_request_limits.py", r"test_a_declared", "bodies that are too long when they are read"),
    Left("attack/test_texts.py", r"test_(the_time|texts|the_measurement)", "comparisons that are given up"),
    Left("attack/test_answers.py", r"test_the_measurement", "patterns that are measured"),
    Left("attack/test_rendering.py", r"test_the_library", "what pages do about it"),
    Left("attack/test_references.py", r".*\[bubblewrap", "the same under Landlock"),
    Left("optimizer/test_queue_machine.py", "", "the queue's transitions one by one"),
    Left("optimizer/test_start_and_steer.py", r"test_buttons", "each button"),
    Left("optimizer/test_samplers.py", r"test_nothing_is|.*optuna", "the other properties, on our own samplers"),
    Left("optimizer/test_samplers_gp.py", r"test_(it_needs|in_a_space)", "what a Gaussian process suggests"),
    # Runs and campaigns that are driven to their end.
    Left(
        "optimizer/test_every_state.py",
        r".*\[(queued|paused|running|stop|failed|settling|pending|finished)",
        "one of ten states",
    ),
    Left(
        "optimizer/test_campaigns.py",
        r"test_(configurations_share|a_configuration_whose|the_same_campaign|a_limit|a_side|a_problem_that_does)",
        "a whole campaign; one whose steps are killed anywhere",
    ),
    Left(
        "optimizer/test_campaign_continued.py",
        r"test_(a_continued|a_campaign_under|only|what_was_settled|a_run_that_cannot|limits|runs_of|a_limit)",
        "finished runs that go on",
    ),
    Left(
        "optimizer/test_campaign_ends.py",
        r"test_(stopping_in_the_sett|a_run_that_(paused|was)|runs_of|whether|pausing|limits|a_limit)",
        "a run that a person pauses, who is told of the end",
    ),
    Left("optimizer/test_campaign_troubles.py", "", "each loss by itself"),
    Left("optimizer/test_campaign_pages.py", r"test_(tracing|a_live|kernelbench)", "the pages' other contents"),
    Left(
        "optimizer/test_leaders.py",
        r"test_(a_kernel_pr|no_kernel.*\[1|the_order.*dcba|as_many)",
        "a seed and order",
    ),
    Left(
        "optimizer/test_warm_start.py",
        r"test_(a_private|a_ceiling)",
        "other runs, a roofline that is reached",
    ),
    Left("optimizer/test_plan.py", r"test_(what_is_worth|a_run_that_used)", "a run that stops at its minutes"),
    Left("optimizer/test_bad_input.py", r"test_a_run_of_five", "pages of few kernels; CI alone: of 5,000"),
    Left(
        "optimizer/test_llm_record.py",
        r"test_(a_recorded|the_name_of|a_replay_ends)",
        "a shipped recording that is played; CI alone: a replay that ends before its run",
    ),
    Left("optimizer/test_llm_worker.py", r"test_no_more", "one call after another"),
    Left("optimizer/test_tools_provider.py", r".*\[chat\]", "the other dialect"),
    Left("optimizer/test_measured_elsewhere.py", r"test_(pages|prompts)", "what is predicted from the same builds"),
    Left("optimizer/test_shared_seeds.py", r"test_the_campaign_comes", "which seeds are shared, and by whom"),
    Left("optimizer/test_driven_runs.py", r"test_a_copy", "every test that begins with a copy"),
    Left(
        "optimizer/test_problem_uploads.py",
        r"test_a_(bad_module.*source[0134]|pasted)",
        "one of five such modules",
    ),
    # Compilers, and programs that import torch.
    Left("optimizer/test_problem_import.py", r"test_(every_problem|why|a_reference)", "imports by the page"),
    Left(
        "optimizer/test_knowledge_pages.py",
        r"test_a_(triton|cpp)_snippet_(computes|that_fails)|"
        r"test_a_(cuda|hip|triton)_snippet_builds.*\[(sm_80|sm_100|gpu|gfx950|gfx90a|sm_90/(tri|clu|fp8|warp|dep|mbar)|"
        r"gfx942/(tri|xcd|wave|lds|inf))",
        "what pages say, six snippets in HIP, two in CUDA, one in Triton; CI alone: the others",
    ),
    Left("optimizer/test_compiled_ahead.py", r"test_hip", "the same with a made-up compiler"),
    Left(
        "runners/test_emulation.py",
        r"test_(every_shipped.*(mfma|tiled|rows)|every_mutant.*(missing|naive|after)|the_compiler|a_flood|"
        r"what_the|recursion|lds_that|a_write)",
        "seeds, mutants and ways to end, one of each kind; every fault without the harness",
    ),
    Left(
        "runners/test_emulation_matrix.py", r"test_a_matrix.*(f32_32x32|i32|f64)", "the other matrix instructions"
    ),
    Left("runners/test_light_dynamo.py", "", "examined modules in other tests, which are traced so"),
    Left(
        "runners/test_check.py",
        r"test_(tensors|a_bfloat16|tuned|a_kernel_that_asks|a_kernel_in_gluon|a_timing)",
        "Triton, C++",
    ),
    Left(
        "runners/test_capture.py",
        r"test_(a_kernel_(returns|captured|that_is)|a_wrong)",
        "a captured module; one that dies",
    ),
    Left(
        "runners/test_export_languages.py", r"test_(triton_package|every_triton)", "a HIP kernel; every seed's text"
    ),
    Left("runners/test_export.py", r"test_(a_compiled|a_modelnew_keeps|the_operator)", "weights in half precision"),
    Left("runners/test_compiled_ahead.py", r"test_variants", "batches that are cancelled or made at once"),
    Left("runners/test_problems_native.py", r"test_cpp_seeds.*\[(fp8_block|matmul)", "seeds of other problems"),
    Left("runners/test_problems_signature.py", r"test_(a_model_that_takes|code_that)", "every signature"),
    Left("runners/test_problems_syntax.py", r"test_threads", "each text by itself"),
    Left("runners/test_problems_filters.py", r"test_a_reference_that_fails.*while", "a reference that raises"),
    Left("runners/test_candidate_memory.py", r".*\[40\]", "four megabytes"),
    Left(
        "runners/test_formats_evaluated.py",
        r"test_(a_model_with|the_command|a_task_with_nested)",
        "a format beside itself; CI alone: nested inputs, other names of parameters",
    ),
    Left("runners/test_triton_device_functions.py", "", "kernels that call them, in other tests"),
    Left(
        "runners/test_static_builds.py",
        r"test_(hostile_or_broken|a_grid|every_cuda.*(bf16|attention|fp8|grouped|matmul|w4a16|layernorm)|"
        r"every_triton.*matmul|every_hip.*(mfma|rows))",
        "a seed of each language; broken texts as models; CI alone: grids, matrix instructions of CUDA seeds",
    ),
    Left(
        "runners/test_static_extensions.py",
        r"test_what_the_compiler_refuses",
        "what is made of such a report; an extension that is compiled",
    ),
    Left(
        "runners/test_static_model_builds.py",
        r"test_(a_candidate_may|a_tuner_passes|configurations_that)",
        "kernels compiled with a problem's shapes, one that needs too much; CI alone: tuners, warmup",
    ),
    Left("runners/test_gate.py", r"test_gate_measures", "when it looks again and what it says"),
    Left("runners/test_targets.py", r"test_the_probe", "what is made of its figures"),
    Left("runners/test_started_ahead.py", r"test_a_process_forked_for", "what such a process is asked to import"),
    Left(
        "runners/test_evaluate.py",
        r"test_(parent_with|kernel_that_slows)",
        "a parent that is timed beside the baseline; CI alone: a kernel that slows its own clock",
    ),
    Left(
        "runners/test_module_build.py",
        r".*(never returns|never imports|memory\]|second_evaluation|parent_that_was)",
        "an extension that is built, a compiler that is missing",
    ),
    # Attempts to leave the sandbox. What forking and Landlock add is in test_sandbox_forked.py and test_sandbox.py.
    Left(
        "runners/test_sandbox_escapes.py", r".*\[(bubblewrap-forked|landlock-)", "each under bubblewrap, executed"
    ),
)


def is_left(nodeid: str) -> bool:
    """Return whether `make test` leaves a test to CI."""
    return any(entry.holds(nodeid) for entry in LEFT)
