"""Test what is said of a kernel that dies on the device, without a device."""

from __future__ import annotations

import pytest

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
