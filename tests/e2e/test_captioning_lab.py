"""The captioning benchmark in small: where the line is slow, sharing out takes longer."""

import json
import shutil
from pathlib import Path

import pytest
from tests.lab.kernel import need_kernel
from tests.patience import measured

from reparto.spec import LabSweep, from_plain

#: Slices stay as they are: each worker draws the dropout of its own samples.
EVEN, LABEL = "all-reduce:balance=even", "all-reduce balance=even"
TRAIN = Path(__file__).parents[2] / "examples" / "captioning" / "train.py"


def swept(cli, *options, scenes, dimension, steps):
    """Sweep two nodes over two rates, anew; every cell trains for the same steps."""
    shutil.rmtree(cli.folder / "reparto-lab", ignore_errors=True)
    script = (TRAIN, "--scenes", scenes, "--dimension", dimension, "--epochs", 50, "--lr", 0.01)
    script += ("--evaluate-every", 10_000, "--steps", steps)
    done = cli.run(
        "lab", "sweep", "--nodes", "2", "--strategies", EVEN, "--json", "-", *options, *script
    )
    assert done.returncode == 0, done.stderr
    found = from_plain(LabSweep, json.loads(done.stdout)["sweep"])
    assert {one.run.status for one in found.cells} == {"done"}
    assert {one.run.last.step for one in found.cells} == {steps}
    assert (cli.folder / "reparto-lab" / "sweep.html").exists()
    return found


def seconds_on_the_wire(found, rate):
    """The least that the slow cell can take: what a node sends, at the rate."""
    curve = found.cell(2, rate, LABEL).run.curve
    return 8 * (curve[-1].wire_bytes - curve[0].wire_bytes) / rate


def losses_agree(found):
    """Whatever the line, two nodes have the same losses; and they learn, as one node does."""
    curves = [[point.loss for point in one.run.curve] for one in found.cells]
    print(*curves, sep="\n")  # shown where the test fails
    alone, slow, quick = curves
    if slow != pytest.approx(quick, rel=1e-3):
        pytest.fail("losses differ with the line")
    if any(curve[-1] >= curve[0] - 0.2 for curve in (alone, quick)):
        pytest.fail("it does not learn")


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.timeout(900)
@measured(3)
def test_on_labs_of_the_kernel_the_slow_line_costs_what_it_carries(cli):
    need_kernel()
    options = ("--rates", "10mbit,none", "--cpu", 0.9)
    found = swept(cli, *options, scenes=100, dimension=32, steps=20)
    assert found.kind == "kernel"
    losses_agree(found)
    slow, quick = (found.seconds(2, rate, LABEL) for rate in (1e7, None))
    assert slow > 0.9 * seconds_on_the_wire(found, 1e7)
    assert slow > 1.3 * quick
    usage = found.cell(2, 1e7, LABEL).usage
    assert set(usage.hosts) == {"node-1", "node-2"}


@pytest.mark.forked
@pytest.mark.alone
@pytest.mark.timeout(900)
@measured(3)
def test_emulated_the_slow_line_costs_what_it_carries(cli):
    options = ("--rates", "10mbit,none", "--emulate")
    found = swept(cli, *options, scenes=60, dimension=16, steps=15)
    assert found.kind == "emulated"
    losses_agree(found)
    slow, quick = (found.seconds(2, rate, LABEL) for rate in (1e7, None))
    assert slow > 0.9 * seconds_on_the_wire(found, 1e7)
    assert slow > 1.3 * quick
