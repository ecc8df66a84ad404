"""What is measured of a lab is what it was set to; and where it is not, that is told."""

import json
import re
import subprocess

import pytest

from reparto.cli import main
from reparto.lab import (
    CpuCheck,
    LabCheck,
    LineCheck,
    _check,
    check,
    lay_out,
    stand,
    this_machine,
    up,
)
from reparto.lab._check import way_of
from reparto.lab._layout import bridge_name
from reparto.spec import Lab, LabHost, LabLink, Line
from tests.lab.kernel import clean, need_kernel, new_lab
from tests.patience import measured

RATE = 20e6


@pytest.fixture
def lab():
    need_kernel()
    made = new_lab(rate="20mbit", cpu=0.3)
    yield made
    clean(made)


@pytest.mark.root
@pytest.mark.alone
@measured()
def test_lines_and_shares_of_cpu_are_as_they_were_set(lab):
    told = []
    with stand(lab) as layout:
        found = check(layout, told.append)
    assert found.kind == "kernel" and found.is_good
    assert [(line.host, line.way) for line in found.lines] == [
        (host, way) for host in ("node-1", "node-2") for way in ("up", "down")
    ]
    for line in found.lines:
        assert line.set_bits_per_s == RATE
        assert line.measured_bits_per_s == pytest.approx(RATE, rel=0.05)
    assert "line down of node-2" in told
    if this_machine().cgroups:
        assert [cpu.host for cpu in found.cpus] == ["node-1", "node-2"]
        for cpu in found.cpus:  # a machine that is busy otherwise gives less, never more
            assert 0.15 < cpu.measured_cores < 0.3 * 1.15


@pytest.mark.root
@pytest.mark.alone
def test_a_line_that_was_changed_behind_its_back_is_told_as_off(lab, monkeypatch, capsys):
    monkeypatch.setattr(_check, "_LONG_S", 1.5)
    monkeypatch.setattr(_check, "_iperf", lambda *_: None)  # a second opinion, of the test above
    up(lab)
    outer = f"{bridge_name(lab)}.1"
    changed = ("tbf", "rate", "10mbit", "burst", "16000", "latency", "50ms")
    subprocess.run(["tc", "qdisc", "change", "dev", outer, "root", *changed], check=True)
    described = ["--nodes", "2", "--rate", "20mbit", "--cpu", "0.3", "--name", lab.name]

    @measured()
    def rates_are_told():
        assert main(["lab", "check", *described, "--json", "-"]) == 1
        told = capsys.readouterr()
        assert "a line is off" in told.err
        found = json.loads(told.out)
        assert found["good"] is False
        rates = {
            (line["host"], line["way"]): line["measured_bits_per_s"] / RATE
            for line in found["lines"]
        }
        # What node-2 receives is what node-1 sends: both are measured by the same stream.
        assert rates["node-2", "down"] == pytest.approx(0.5, rel=0.25)
        assert rates["node-1", "up"] == pytest.approx(0.5, rel=0.25)
        assert rates["node-2", "up"] > 0.8
        assert re.search(r"node-2 +line down .*-\d+\.\d % !", told.err)

    rates_are_told()


@pytest.mark.alone
@measured()
def test_emulated_lines_are_as_they_were_set():
    lab = new_lab(up="20mbit", down="40mbit", delay="10ms")
    found = check(lay_out(lab, this_machine(), emulate=True))
    assert found.kind == "emulated"
    assert [line.set_bits_per_s for line in found.lines] == [RATE] * 4
    for line in found.lines:  # a machine that is busy otherwise is slower, never faster
        assert 0.7 < line.measured_bits_per_s / RATE < 1.05
    assert found.cpus == ()


def test_one_host_has_no_line_to_measure():
    assert check(lay_out(new_lab(1), this_machine(), emulate=True)).lines == ()


def test_a_line_is_measured_with_the_partner_that_holds_it_back_least():
    lines = (Line(up_bits_per_s=8e6), Line(down_bits_per_s=1e6), Line(down_bits_per_s=5e6))
    hosts = tuple(LabHost(name=name, line=line) for name, line in zip("abc", lines, strict=True))
    lab = Lab(name="l", hosts=hosts)
    assert way_of(lab, 0, "up") == (0, 2, 5e6)
    assert way_of(lab, 1, "down")[1:] == (1, 1e6)
    assert way_of(lab, 1, "up") == (1, 0, None)
    narrow = Lab(name="l", hosts=hosts, links=(LabLink(between=("c", "a"), rate_bits_per_s=5e5),))
    assert way_of(narrow, 0, "up") == (0, 1, 1e6)


@pytest.mark.parametrize(
    ("measured", "is_off"), [(94e5, True), (96e5, False), (104e5, False), (106e5, True)]
)
def test_a_line_is_off_beyond_five_percent_either_way(measured, is_off):
    line = LineCheck(host="a", way="up", set_bits_per_s=1e7, measured_bits_per_s=measured)
    assert line.is_off is is_off
    assert LabCheck(kind="kernel", lines=(line,)).is_good is not is_off


def test_what_was_not_limited_cannot_be_off():
    line = LineCheck(host="a", way="up", set_bits_per_s=None, measured_bits_per_s=1.0)
    cpu = CpuCheck(host="a", set_cores=0.5, measured_cores=0.1)
    assert line.off is None
    assert LabCheck(kind="kernel", lines=(line,), cpus=(cpu,)).is_good
