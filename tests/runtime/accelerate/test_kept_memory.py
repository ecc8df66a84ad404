"""Memory between steps: kept where there is plenty, given back when it becomes scarce."""

import platform
import resource

import pytest
import torch

from reparto.runtime.accelerate._kept_memory import (
    GIVING_BACK,
    KEEPING,
    LOOK_EVERY_S,
    WORTH_PAGES,
    KeptMemory,
    Memory,
    is_scarce,
    kept_memory,
    may_keep,
)

GIB = 2**30


def seen(pages=0, resident=2 * GIB, peak=3 * GIB, left=6 * GIB):
    return Memory(pages=pages, resident_bytes=resident, peak_bytes=peak, left_bytes=left)


class Libc:
    """Notes what is asked of it."""

    def __init__(self):
        self.options, self.num_trims = {}, 0

    def mallopt(self, option, value):
        self.options[option] = value
        return 1

    def trim(self, pad):
        self.num_trims += 1
        return 1


def after_two_steps(*looks):
    libc, found = Libc(), iter(looks)
    memory = KeptMemory(lambda: next(found), libc.mallopt, libc.trim)
    memory.stepped(1, 0.0)
    memory.stepped(2, 0.0)
    return memory, libc


def test_it_may_be_kept_where_the_most_fits_twice():
    assert may_keep(seen(resident=2 * GIB, peak=4 * GIB, left=6 * GIB))
    assert not may_keep(seen(resident=2 * GIB, peak=4 * GIB + 1, left=6 * GIB))
    assert not may_keep(seen(left=0))  # unknown


def test_it_is_scarce_where_less_than_a_quarter_is_left():
    assert not is_scarce(seen(resident=6 * GIB, left=2 * GIB))
    assert is_scarce(seen(resident=6 * GIB + 4, left=2 * GIB))


def test_it_is_kept_if_a_step_takes_many_pages():
    memory, libc = after_two_steps(seen(1000), seen(1000 + WORTH_PAGES))
    assert memory.is_on
    assert libc.options == KEEPING
    assert memory.saved_pages == WORTH_PAGES
    assert memory.told() == [
        "memory is kept between steps, 1 MiB of which a step took from the system anew"
    ]


@pytest.mark.parametrize(
    "looks",
    [
        (seen(1000), seen(1000 + WORTH_PAGES - 1)),
        (seen(1000), seen(9000, peak=5 * GIB)),
    ],
    ids=["few pages", "not enough memory"],
)
def test_it_is_left_to_the_system(looks):
    memory, libc = after_two_steps(*looks)
    assert not memory.is_on
    assert libc.options == {}
    assert memory.told() == []


def test_it_is_given_back_when_it_becomes_scarce_and_stays_so():
    scarce = seen(left=GIB // 2)
    memory, libc = after_two_steps(seen(0), seen(9000), seen(), scarce)
    memory.stepped(3, LOOK_EVERY_S / 2)  # does not look
    memory.stepped(4, LOOK_EVERY_S)
    assert memory.is_on
    memory.stepped(5, 2 * LOOK_EVERY_S)
    assert not memory.is_on
    assert libc.options == KEEPING | GIVING_BACK
    assert libc.num_trims == 1
    memory.stepped(1, 9.0)  # another training: nothing is asked any more
    memory.stepped(2, 9.0)
    memory.give_back()
    assert libc.num_trims == 1
    assert "scarce" in memory.told()[0]


def test_where_the_c_library_is_another_nothing_is_done():
    memory = KeptMemory(lambda: pytest.fail("asked"), None)
    for number in range(1, 5):
        memory.stepped(number, float(number))
    assert memory.told() == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_steps_take_no_more_pages_from_the_system():
    def step():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(12 * 2**20).add(1)  # two blocks of 48 MiB
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    memory = kept_memory()
    memory.stepped(1, 0.0)
    assert step() > 1000
    memory.stepped(2, 0.0)
    assert memory.is_on
    try:
        for _ in range(10):  # the heap grows until all of a step fits
            step()
        assert step() < 100
    finally:
        memory.give_back()
    step()
    assert step() > 1000
