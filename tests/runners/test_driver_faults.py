"""Test what is said of a kernel that dies on the device, without a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runners.candidate import main
from runners.candidate.driver import Driver, DriverError, OutOfMemoryError


def driver(prefix: str = "cu") -> Driver:
    """Return a driver that has no library."""
    made = Driver.__new__(Driver)
    made._prefix = prefix
    return made


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (700, "cuSynchronize failed with error 700: a kernel accessed an illegal address"),
        (715, "innermost coordinate is not a multiple of 16 bytes"),
        (716, "not aligned as the instruction needs it"),
    ],
)
def test_the_fault_of_a_kernel_is_named_and_not_only_numbered(code: int, said: str) -> None:
    with pytest.raises(DriverError) as failure:
        driver().check("Synchronize", code)
    assert said in str(failure.value)


def test_other_errors_keep_their_number_and_lack_of_memory_is_an_error_of_its_own() -> None:
    with pytest.raises(DriverError, match=r"^hipSetDevice failed with error 101$"):
        driver("hip").check("SetDevice", 101)
    with pytest.raises(OutOfMemoryError, match="out of device memory"):
        driver().check("MemAlloc", 2)
    driver().check("Init", 0)


class Asked:
    """Represent a caller whose answer is an exception."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def answer(self, question: dict[str, Any]) -> Any:
        return self._answer()


def text_of(answer: Callable[[], Any]) -> str:
    """Return what is told of an exception, as if this file were one of the program's own."""
    told: str = main.guarded(Asked(answer), {"nonce": 1})["text"]  # type: ignore[arg-type]
    return told


def test_the_trace_of_an_exception_begins_at_the_candidates_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "OWN", ("/".join(__file__.split("/")[:-1]), main.OWN))
    scope: dict[str, Any] = {}
    exec(compile("def custom_kernel():\n    return 1 / 0\n", "/work/kernel.py", "exec"), scope)  # noqa: S102
    told = text_of(scope["custom_kernel"])
    assert told.splitlines()[0] == "Traceback (most recent call last):"
    assert told.splitlines()[1] == '  File "/work/kernel.py", line 2, in custom_kernel'
    assert "guarded" not in told and told.endswith("ZeroDivisionError: division by zero\n")


def test_what_torch_calls_before_a_candidates_model_is_left_out_and_what_it_calls_after_is_not() -> None:
    scope: dict[str, Any] = {}
    model = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.stack(x)\n"
    )
    exec(compile(model, "/work/kernel.py", "exec"), scope)  # noqa: S102
    told = text_of(lambda: scope["ModelNew"]()([])).splitlines()
    assert told[1] == '  File "/work/kernel.py", line 4, in forward' and "non-empty TensorList" in told[-1]
    without = text_of(lambda: scope["ModelNew"]()())
    assert "guarded" not in without and "missing 1 required positional argument" in without


def test_a_fault_of_the_device_has_no_trace_and_an_error_of_the_program_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "OWN", ("/".join(__file__.split("/")[:-1]), main.OWN))
    assert text_of(lambda: driver().check("Synchronize", 715)).startswith(
        "runners.candidate.driver.DriverError: cuSynchronize failed with error 715: a kernel executed an illegal"
    )
    assert "in guarded" in text_of(lambda: int("no number"))


def test_an_exception_that_cannot_be_shown_is_an_answer_like_any_other() -> None:
    class Silent(ValueError):
        def __str__(self) -> str:
            raise SystemExit(3)

    def fail() -> Any:
        raise Silent

    told = main.guarded(Asked(fail), {"nonce": 1})  # type: ignore[arg-type]
    assert (told["ok"], told["kind"], told["message"]) == (False, "Silent", "<exception str() failed>")
