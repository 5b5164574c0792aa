"""Test the C signature and the work figures that are derived from a KernelBench module."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runners import wire
from runners.job import Language, ProblemBundle
from runners.problems import filters, load, open_bundle
from runners.problems.base import Problem, ProblemError, Purpose, Role
from runners.problems.deriving import derive
from runners.problems.filters import examine, signed, with_signature
from runners.problems.prototype import prototype
from runners.problems.signature import FILE, Signature
from runners.targets import target

LAYERS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, eps):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("unused", torch.zeros(3))
        self.eps = eps

    def forward(self, x, shift):
        return torch.relu(self.linear(x)) * self.eps + shift


batch_size, in_features = 512, 4096
out_features = 2048


def get_inputs():
    return [torch.rand(batch_size, in_features), 3]


def get_init_inputs():
    return [in_features, out_features, 1e-5]
"""
FORWARD = "return torch.relu(self.linear(x)) * self.eps + shift"
# Tensors are fake only while the model is traced.
SLOW_TO_TRACE = """import time; from torch._subclasses import FakeTensor
        time.sleep(60 * isinstance(x, FakeTensor))
        return x * 2.0"""


def bundle(folder: Path, text: str) -> ProblemBundle:
    path = folder / "1_Layers.py"
    path.write_text(text)
    return load(path)


def derived(folder: Path, text: str = LAYERS) -> tuple[Signature, Problem]:
    found = bundle(folder, text)
    signature = derive(found)
    return signature, open_bundle(signed(found, wire.dumps(signature)))


def refusal(folder: Path, forward: str, text: str = LAYERS) -> str:
    return derived(folder, text.replace(FORWARD, forward))[0].refused


def test_inputs_parameters_numbers_sizes_and_outputs_come_in_that_order(tmp_path: Path) -> None:
    _, problem = derived(tmp_path)
    assert prototype(problem, Language.CPP) == (
        'extern "C" void kernel(const float* x, int64_t shift, const float* linear_weight, const float* linear_bias, '
        "int64_t in_features, int64_t out_features, double eps, int64_t batch_size, float* out);"
    )
    assert prototype(problem, Language.CUDA).endswith("float* out, void* stream);")
    weight = next(argument for argument in problem.arguments if argument.name == "linear_weight")
    assert (weight.role, weight.value_name) == (Role.PARAMETER, "linear.weight")
    assert weight.shape == ("out_features", "in_features")


def test_a_problem_with_a_signature_takes_compiled_kernels_and_one_without_does_not(tmp_path: Path) -> None:
    _, problem = derived(tmp_path)
    assert {Language.CPP, Language.CUDA, Language.HIP, Language.TRITON, Language.PYTHON} == set(problem.languages)
    assert set(open_bundle(bundle(tmp_path, LAYERS)).languages) == {Language.TRITON, Language.PYTHON}


def test_sizes_have_each_cases_own_values(tmp_path: Path) -> None:
    _, problem = derived(tmp_path)
    batch = next(argument for argument in problem.arguments if argument.name == "batch_size")
    (reduced,), (published,) = (problem.cases(family, Purpose.BENCHMARK) for family in ("cpu", "gpu"))
    assert problem.size_of(batch, published) == 512
    assert problem.size_of(batch, reduced) == reduced.sizes["batch_size"] < 512


def test_products_count_two_flops_and_everything_else_one_for_each_element(tmp_path: Path) -> None:
    _, problem = derived(tmp_path)
    (case,) = problem.cases("gpu", Purpose.BENCHMARK)
    work = problem.work(case)
    assert work is not None and work.traced
    elements = 512 * 2048
    assert work.flops == {"float32": 2 * elements * 4096 + 3 * elements}
    assert work.bytes == 4 * (512 * 4096 + 2048 * 4096 + 2048 + elements)


def test_the_roofline_knows_traced_work_but_physics_takes_only_its_bytes(tmp_path: Path) -> None:
    _, problem = derived(tmp_path)
    work = problem.work(problem.cases("gpu", Purpose.BENCHMARK)[0])
    assert work is not None
    h100 = target("sm_90")
    bound, floor = h100.roofline_us(work), h100.floor_us(work)
    declared = h100.floor_us(replace(work, traced=False))
    assert bound is not None and floor is not None and declared is not None
    assert bound > declared > floor


def test_an_operation_without_a_rule_leaves_the_flops_empty_and_is_named(tmp_path: Path) -> None:
    signature, _ = derived(tmp_path, LAYERS.replace(FORWARD, "return torch.linalg.qr(self.linear(x))[0]"))
    figures = signature.cases["published"]
    assert (figures.flops, figures.uncounted) == ({}, ("aten.linalg_qr",))
    assert figures.bytes > 0


def test_a_table_that_is_looked_up_counts_the_rows_that_are_read(tmp_path: Path) -> None:
    text = LAYERS.replace("nn.Linear(in_features, out_features)", "nn.Embedding(in_features, out_features)")
    text = text.replace("torch.rand(batch_size, in_features)", "torch.randint(0, 8, (batch_size,))")
    signature, _ = derived(tmp_path, text.replace(FORWARD, "return self.linear(x)"))
    assert signature.cases["published"].bytes == 8 * 512 + 2 * 4 * 512 * 2048


def test_statistics_that_training_only_updates_are_no_parameters(tmp_path: Path) -> None:
    text = LAYERS.replace("nn.Linear(in_features, out_features)", "nn.BatchNorm1d(in_features)")
    _, problem = derived(tmp_path, text.replace(FORWARD, "return self.linear(x)"))
    assert [a.name for a in problem.arguments if a.role is Role.PARAMETER] == ["linear_weight", "linear_bias"]


def test_several_outputs_and_names_that_are_words_of_c_become_identifiers(tmp_path: Path) -> None:
    text = LAYERS.replace(FORWARD, "return float + shift, (float * 2, self.linear(float))")
    _, problem = derived(tmp_path, text.replace("x, shift", "float, shift"))
    assert [a.name for a in problem.arguments if a.role is Role.OUTPUT] == ["out0", "out1", "out2"]
    assert problem.arguments[0].name == "float_2"


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        ("return torch.rand_like(x)", "random numbers"),
        ("return nn.functional.dropout(x, 0.5)", "random numbers"),
        ("return self.linear(x).sum().item()", "could not be traced"),
        ("return {'a': x, 'b': 1.0}", "returns float"),
        ("return x * self.hidden", "reads the tensor hidden"),
        ("self.linear.bias += 1; return self.linear(x)", "changes linear.bias"),
    ],
)
def test_what_no_c_function_could_compute_is_refused_in_one_sentence(
    tmp_path: Path, forward: str, why: str
) -> None:
    text = LAYERS.replace("self.eps = eps", "self.eps = eps\n        self.hidden = torch.randn(in_features)")
    refused = refusal(tmp_path, forward, text)
    assert why in refused and refused.endswith(".")


def test_no_dropout_is_no_randomness(tmp_path: Path) -> None:
    assert not refusal(tmp_path, "return nn.functional.dropout(self.linear(x), 0.0)")
    assert not refusal(tmp_path, "return nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])")


def test_a_layer_that_clones_itself_is_traced(tmp_path: Path) -> None:
    built = "self.eps = eps\n        import copy; self.twin = copy.deepcopy(self.linear)"
    text = LAYERS.replace("self.eps = eps", built)
    assert not refusal(tmp_path, "return self.linear(x) + self.twin(x)", text)


def test_a_constructor_that_reads_values_is_traced(tmp_path: Path) -> None:
    built = "self.eps = torch.linspace(0, eps, 2)[1].item()"
    signature, _ = derived(tmp_path, LAYERS.replace("self.eps = eps", built))
    assert signature.arguments and not signature.refused


def test_a_signature_of_another_text_is_ignored_and_a_malformed_one_refused(tmp_path: Path) -> None:
    signature, problem = derived(tmp_path)
    files = {"1_Layers.py": LAYERS + "\n# changed\n", FILE: wire.dumps(signature)}
    changed = open_bundle(ProblemBundle("1_Layers", "kernelbench", "1_Layers.py", files))
    assert problem.arguments and not changed.arguments
    for spoil in (
        {"arguments": [{**json.loads(wire.dumps(signature))["arguments"][0], "name": "x); system("}]},
        {"arguments": [{**json.loads(wire.dumps(signature))["arguments"][0], "shape": ["nowhere"]}]},
        {"cases": {"published": {"sizes": {}, "flops": {}, "bytes": 1.0}}},
        {"surprise": 1},
    ):
        text = json.dumps({**json.loads(wire.dumps(signature)), **spoil})
        broken = ProblemBundle("1_Layers", "kernelbench", "1_Layers.py", {"1_Layers.py": LAYERS, FILE: text})
        with pytest.raises(ProblemError, match=FILE):
            open_bundle(broken)
        assert FILE not in signed(bundle(tmp_path, LAYERS), text).files


@pytest.mark.processes
def test_examining_derives_the_signature_in_its_own_process(tmp_path: Path) -> None:
    examination = examine(bundle(tmp_path, LAYERS), timeout_s=120)
    assert examination.failure is None
    assert wire.loads(Signature, examination.signature).arguments
    with_it = with_signature(bundle(tmp_path, LAYERS), timeout_s=120)
    assert with_it.files[FILE] == examination.signature


@pytest.mark.processes
def test_a_model_that_takes_too_long_to_trace_is_still_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "TRACING_SHARE", 0.01)
    slow = bundle(tmp_path, LAYERS.replace(FORWARD, SLOW_TO_TRACE))
    examination = examine(slow, timeout_s=60)
    assert "not traced within 0.6 s" in wire.loads(Signature, examination.signature).refused
    assert examination.failure is None


@pytest.mark.processes
def test_code_that_never_ends_leaves_the_problem_without_a_signature(tmp_path: Path) -> None:
    endless = bundle(tmp_path, LAYERS + "\nimport time\nwhile True: time.sleep(60)\n")
    assert with_signature(endless, timeout_s=3) == endless


def test_tracing_the_published_sizes_takes_no_memory(tmp_path: Path) -> None:
    huge = LAYERS.replace("4096", "4194304").replace("2048", "1048576")
    signature, _ = derived(tmp_path, huge)
    assert signature.cases["published"].bytes > 4 << 40
