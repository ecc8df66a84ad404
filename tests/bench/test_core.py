"""All threads on one core, the quietest; what was timed while it was not calm does not count."""

import os
import threading

import pytest

from reparto.bench import _core, _infer, _train
from reparto.bench._core import Anywhere, Core, Threads
from reparto.bench._stretches import Stretches


class Machine:
    """Threads and cores; a core takes so many seconds for a probe, and may be disturbed."""

    def __init__(self, *seconds, allowed=True):
        self.seconds = dict(enumerate(seconds))
        self.allowed = allowed
        self.at = {7: set(self.seconds), 8: set(self.seconds)}
        self.probed = []

    def all(self):
        return list(self.at)

    def cores_of(self, thread=0):
        return set(self.at.get(thread or 7, ()))

    def put(self, thread, cores):
        if not self.allowed or (thread or 7) not in self.at:
            return False
        self.at[thread or 7] = set(cores)
        return True

    def probe(self):
        core = min(self.at[7]) if len(self.at[7]) == 1 else None
        self.probed.append(core)
        return self.seconds[core]


def core_of(machine):
    return Core(machine, machine.probe)


def test_all_threads_are_held_on_the_quietest_core_and_put_back():
    machine = Machine(1.3, 1.0, 1.1, 1.0001)
    machine.at[8] = {0, 2}
    core = core_of(machine)
    with core.held():
        assert machine.at == {7: {1}, 8: {1}}
        machine.at[9] = {1}  # made meanwhile, as autograd's is
    assert machine.at == {7: {0, 1, 2, 3}, 8: {0, 2}, 9: {0, 1, 2, 3}}
    assert "one core" in core.notes[0]


def test_a_core_that_is_still_quiet_is_taken_again_without_looking_at_others():
    machine = Machine(1.3, 1.0, 1.1)
    core = core_of(machine)
    with core.held():
        pass
    machine.probed.clear()
    machine.seconds[0] = 0.99
    with core.held():
        assert machine.at[8] == {1}
    assert machine.probed == [1]


def test_a_core_that_is_disturbed_twice_is_left_for_the_quietest():
    machine = Machine(1.3, 1.0, 1.02)
    core = core_of(machine)
    with core.held():
        assert core.calm()
        machine.seconds[1] = 1.5
        assert not core.calm()
        assert machine.at[8] == {1}
        assert not core.calm()
        assert machine.at == {7: {2}, 8: {2}}
        assert core.calm()


def test_one_lucky_probe_does_not_make_all_others_slow():
    machine = Machine(*[1.0] * 15, 0.5)
    core = core_of(machine)
    with core.held():
        machine.seconds[15] = 1.0
        assert sum(core.calm() for _ in range(30)) > 20


def test_of_many_cores_some_are_looked_at_others_each_time():
    machine = Machine(*[1.0] * 64)
    core = core_of(machine)
    with core.held():
        first = set(machine.probed)
        machine.seconds = dict.fromkeys(range(64), 1.0)
        machine.seconds[min(machine.at[7])] = 2.0
        machine.probed.clear()
        core.calm(), core.calm()
    second = set(machine.probed[2:])
    assert len(first) == len(second) == 16
    assert not first & second


def test_where_the_system_does_not_allow_it_nothing_is_held():
    machine = Machine(1.0, 2.0, allowed=False)
    core = core_of(machine)
    with core.held():
        assert core.calm()
    assert (machine.probed, core.notes) == ([], ())


def test_a_processor_that_is_timed_itself_is_not_held():
    core = Anywhere()
    with core.held():
        assert core.calm()
    assert core.notes == ()


@pytest.mark.skipif(not Core.possible(), reason="the system has no such thing")
def test_threads_of_this_process_are_held_and_put_back():
    before, done, inside = os.sched_getaffinity(0), threading.Event(), threading.Event()
    seen = []

    def work():
        inside.wait(5)
        seen.append(os.sched_getaffinity(0))
        done.wait(5)
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    with Core(Threads()).held():
        held = os.sched_getaffinity(0)
        inside.set()
        while not seen:
            pass
    done.set()
    thread.join()
    assert len(held) == 1
    assert seen == [held, before]
    assert os.sched_getaffinity(0) == before


def test_a_probe_takes_less_than_a_hundredth_of_a_second():
    assert 0 < _core.dispatching() < 0.01


def test_stretches_that_were_disturbed_do_not_count():
    kept = Stretches(3.0, 100.0)
    for seconds, counts in ((1.0, True), (9.0, False), (1.1, True), (1.2, True)):
        kept.add([seconds], seconds, counts=counts)
    assert kept.times == [1.0, 1.1, 1.2]
    assert (kept.enough, kept.disturbed) == (True, False)
    assert kept.notes == ("1 of 4 stretches do not count: others used the core",)
    assert kept.marked(("throttled",)) == ("throttled",)


def test_where_hardly_anything_was_calm_all_counts_and_is_known_badly():
    kept = Stretches(3.0, 10.0)
    for seconds, counts in ((1.0, True), (4.0, False), (5.0, False)):
        kept.add([seconds], seconds, counts=counts)
    assert kept.times == [1.0, 4.0, 5.0]
    assert kept.enough
    assert kept.marked(()) == ("noisy",)
    assert kept.notes


def test_patience_for_calmer_moments_ends():
    core = Core(Machine(1.0))
    granted = [core.patience_s() for _ in range(100)]
    assert granted[0] > 0 == granted[-1]
    assert sum(granted) == _core.PATIENCE_S


class Gpu:
    """A GPU and a processor that share a clock."""

    is_gpu = True

    def __init__(self, asking_s, working_s, calm=lambda: True):
        self.asking_s, self.working_s, self.calm = asking_s, working_s, calm
        self.now = self.done = self.own = 0.0
        self.core, self.slower, self.others, self.patience = self, 1.0, 0.0, 0.0

    def patience_s(self):
        return self.patience

    def steps(self, count):
        for _ in range(count):
            self.now += self.asking_s * self.slower * (1 + self.others)
            self.own += self.asking_s * self.slower
            self.done = max(self.done, self.now) + self.working_s

    def wait(self):
        self.now = max(self.now, self.done)


@pytest.fixture
def timed(monkeypatch):
    def run(gpu, count=None):
        monkeypatch.setattr(_train.time, "perf_counter", lambda: gpu.now)
        monkeypatch.setattr(_train.time, "process_time", lambda: gpu.own)
        clock = _train.Clock(gpu, gpu)
        clock.run(count)
        return clock

    return run


def test_blocks_grow_until_waiting_does_not_count(timed):
    clock = timed(Gpu(0.001, 1e-5))
    assert clock.times == pytest.approx([0.001] * len(clock.times), rel=0.01)
    assert len(clock.times) == pytest.approx(_train.GPU_TIMED_S / 0.02, abs=3)
    assert clock.made == pytest.approx(_train.GPU_TIMED_S / 0.001, abs=30)
    assert clock.kept.notes == ()


def test_blocks_of_a_disturbed_processor_are_left_out(timed):
    def calm():
        gpu.slower = 1.4 if 0.1 < gpu.now < 0.3 else 1.0
        return gpu.slower == 1.0

    gpu = Gpu(0.001, 1e-5, calm)
    clock = timed(gpu)
    assert max(clock.times) < 0.00102
    assert max(clock.kept.every) > 0.0013
    assert not clock.kept.disturbed


def test_what_waits_for_the_gpu_counts_whatever_the_processor_does(timed):
    clock = timed(Gpu(0.0005, 0.001, lambda: False))
    assert clock.times == pytest.approx([0.001] * len(clock.times), rel=0.05)
    assert not clock.kept.disturbed


def test_a_processor_that_is_never_calm_ends_and_is_known_badly(timed):
    gpu = Gpu(0.001, 1e-5, lambda: False)
    clock = timed(gpu)
    assert clock.kept.disturbed
    assert gpu.now < 2 * _train.GPU_MOST_S


def test_a_calmer_moment_is_waited_for_where_none_was_seen(timed):
    gpu = Gpu(0.001, 1e-5)
    gpu.calm = lambda: gpu.now > 1.2
    gpu.patience = 1.5
    clock = timed(gpu)
    assert not clock.kept.disturbed
    assert gpu.now < 1.6


def test_other_processes_on_the_core_are_seen_although_the_probe_is_not_disturbed(timed):
    gpu = Gpu(0.001, 1e-5)
    gpu.others = 0.3
    assert timed(gpu).kept.disturbed


def test_so_many_steps_are_made_as_are_asked_for(timed):
    assert timed(Gpu(0.001, 1e-5), count=197).made == 197


def test_calls_of_calm_moments_make_the_row_and_all_of_them_the_tail(monkeypatch):
    now, slower = [0.0], [1.0]

    def calm():
        slower[0] = 3.0 if 0.05 < now[0] < 0.1 else 1.0
        return slower[0] == 1.0

    def answer(x):
        now[0] += 0.001 * slower[0]

    monkeypatch.setattr(_infer.time, "perf_counter", lambda: now[0])
    core = Anywhere()
    core.calm = calm
    kept = _infer.latencies(answer, None, Stretches(0.1, 0.3), core)
    assert max(kept.times) == pytest.approx(0.001)
    assert max(kept.every) == pytest.approx(0.003)
