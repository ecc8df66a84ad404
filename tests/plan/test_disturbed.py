"""A plan that is measured on a busy machine says so."""

from types import SimpleNamespace

import pytest

from reparto import _planning
from reparto.spec import UsageSample


class Sampler:
    """Says how busy the machine is."""

    cores = 0.0

    def take(self):
        return UsageSample(
            time_s=0.0, interval_s=0.1, cpu_cores=self.cores, cpu_limit_cores=4.0,
            memory_bytes=0, memory_limit_bytes=1,
        )  # fmt: skip

    def close(self):
        self.cores = None


@pytest.mark.parametrize(
    ("engine", "cores", "is_told"),
    [("local", 3.2, True), ("local", 0.4, False), ("ray", 3.2, False)],
)
def test_other_programs_are_told_of_where_workers_run_here(monkeypatch, engine, cores, is_told):
    monkeypatch.setattr(_planning, "UsageSampler", Sampler)
    monkeypatch.setattr(Sampler, "cores", cores)
    told = _planning._disturbed(SimpleNamespace(kind=engine))
    assert bool(told) == is_told
    assert all("3.2 of this machine's 4 cores" in one and "idle" in one for one in told)


@pytest.mark.parametrize(("steps", "is_told"), [(4, True), (15, False), (None, False)])
def test_a_script_that_is_over_before_much_was_timed_is_told_of(steps, is_told):
    told = _planning._brief(steps)
    assert bool(told) == is_told
    assert all("makes 4 steps" in one for one in told)
