"""How a script is given another batch, and which failures mean that it did not fit."""

import pytest

from reparto.spec import Failure
from reparto.sweep._fit_run import is_lack_of_memory, option_rows, with_option


@pytest.mark.parametrize(
    ("args", "option", "expected", "rows"),
    [
        (
            ("--batch-size", "8", "--lr", "1"),
            "--batch-size",
            ("--batch-size", "64", "--lr", "1"),
            8,
        ),
        (("--batch-size=8",), "--batch-size", ("--batch-size=64",), 8),
        (("data", "-b8"), "-b", ("data", "-b64"), 8),
        (("-b", "8"), "-b", ("-b", "64"), 8),
        (("--batch-size", "8", "--batch-size=9"), "--batch-size", None, 9),  # the last one holds
        (("lr=1", "batch_size=8"), "batch_size=", ("lr=1", "batch_size=64"), 8),
        (("--batch-sizes", "8"), "--batch-size", None, 0),
        (("--lr", "1"), "--batch-size", ("--lr", "1", "--batch-size", "64"), 0),
        (("lr=1",), "batch_size=", ("lr=1", "batch_size=64"), 0),
    ],
)
def test_option_of_a_script_is_replaced_or_added(args, option, expected, rows):
    assert option_rows(args, option) == rows
    found = with_option(args, option, 64)
    assert option_rows(found, option) == 64
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("error", "message", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", True),
        ("MemoryError", "", True),
        ("Signal", "killed by SIGKILL, as the system does when memory runs out", True),
        ("Signal", "killed by SIGSEGV", False),
        ("RuntimeError", "shape '[64, 10]' is invalid for input of size 1280", False),
        ("Exit", "left with exit status 2", False),
    ],
)
def test_lack_of_memory_is_told_from_other_failures(error, message, expected):
    failure = Failure(rank=0, host="a", error=error, message=message)
    assert is_lack_of_memory(failure) is expected
