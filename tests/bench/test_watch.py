"""Whether a device was itself: clocks and reasons of a GPU, others on the CPU."""

import pytest

from reparto.bench import _watch
from reparto.bench._nvml import GpuState, Nvml
from reparto.bench._watch import CpuState, judge_cpu, judge_gpu


class Library:
    """The driver's library, as far as it is asked."""

    def __init__(self, clock=1500, reasons=0):
        self._clock, self._reasons = clock, reasons

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        return 0 if uuid == b"GPU-1" else 6

    def nvmlDeviceGetClockInfo(self, handle, kind, answer):
        answer._obj.value = self._clock
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle, kind, answer):
        answer._obj.value = 1980
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, answer):
        answer._obj.value = self._reasons
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, answer):
        return 3  # this GPU does not tell


def test_driver_is_asked_for_clocks_and_reasons():
    state = Nvml("GPU-1", Library(reasons=0x40)).state()
    assert state == GpuState(clock_mhz=1500, max_clock_mhz=1980, reasons=0x40, energy_j=None)


def test_gpu_that_the_driver_does_not_know_tells_nothing():
    assert Nvml("GPU-2", Library()).state() == GpuState()


@pytest.mark.parametrize(
    ("clock", "reasons", "throttled"),
    [
        *[(1980, 0x0, False), (1980, 0x1, False), (1900, 0x4, False), (1200, 0x4, True)],
        *[(1900, 0x8, True), (1900, 0x20, True), (1900, 0x40, True)],
    ],
)
def test_gpu_is_throttled_by_heat_or_by_power_that_lowers_its_clock(clock, reasons, throttled):
    last = GpuState(clock_mhz=clock, max_clock_mhz=1980, reasons=reasons)
    seen = judge_gpu(GpuState(), last)
    assert seen.throttled is throttled
    assert seen.flags == (("throttled",) if throttled else ())


def test_energy_of_a_gpu_is_what_was_added():
    assert judge_gpu(GpuState(energy_j=5.0), GpuState(energy_j=7.5)).energy_j == 2.5
    assert judge_gpu(GpuState(), GpuState(energy_j=7.5)).energy_j is None


def test_processor_that_is_slower_afterwards_is_throttled():
    seen = judge_cpu(CpuState(reference_s=1.0), CpuState(time_s=1.0), 1.3)
    assert seen.throttled
    assert "30 % slower" in seen.notes[0]


def test_others_on_the_processor_make_a_row_noisy():
    seen = judge_cpu(CpuState(), CpuState(time_s=10.0, own_s=10.0, busy_s=20.0), 0.0)
    assert seen.flags == ("noisy",)
    assert "other processes used 1.0 cores" in seen.notes[0]


def test_own_work_is_not_others():
    assert judge_cpu(CpuState(), CpuState(time_s=10.0, own_s=20.0, busy_s=21.0), 0.0).flags == ()


def test_counter_of_energy_that_began_anew_is_not_told():
    first, last = CpuState(energy_j=100.0), CpuState(energy_j=1.0, time_s=1.0)
    assert judge_cpu(first, last, 0.0).energy_j is None


def test_system_is_read_for_times_and_energy(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  100 0 200 5000 10 0 0 50 0 0\ncpu0 1 2\n")
    for name, micros in (
        ("intel-rapl:0", 2_000_000),
        ("intel-rapl:0:1", 1),
        ("intel-rapl:1", 5e5),
    ):
        package = tmp_path / "sys" / "class" / "powercap" / name
        package.mkdir(parents=True)
        (package / "energy_uj").write_text(f"{int(micros)}\n")
    busy_s, stolen_s = _watch.machine_seconds(tmp_path)
    assert busy_s == pytest.approx(6 * stolen_s)
    assert _watch.rapl_joules(tmp_path) == pytest.approx(2.5)


def test_system_that_tells_nothing_is_no_error(tmp_path):
    assert _watch.machine_seconds(tmp_path) == (0.0, 0.0)
    assert _watch.rapl_joules(tmp_path) is None
