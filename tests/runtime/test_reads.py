"""Which reads of numbers are the script's, and which are torch's own business."""

import pytest
import torch

from reparto.runtime import _patches
from reparto.runtime._current import current, enter
from reparto.runtime._world import World
from reparto.spec import Options


@pytest.fixture
def seen(monkeypatch):
    """Numbers that count as read by the script, while it is listened to."""
    found = []
    world = World(options=Options())
    monkeypatch.setattr(world, "recorded_value", found.append)
    _patches.install(current, tracking=False)
    _patches.install_recording(current)
    enter(world)
    yield found
    enter(None)
    _patches.uninstall()


def test_numbers_that_the_script_asks_for(seen):
    loss = torch.tensor(0.5)
    read = [loss.item(), float(loss), bool(loss), f"{loss:.1f}", format(loss, ".2f"), f"{loss}"]
    assert read == [0.5, 0.5, True, "0.5", "0.50", "0.5"]
    assert seen == [0.5, 0.5, True, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("tell", [str, repr, format], ids=["str", "repr", "format"])
def test_a_tensor_that_is_printed_reads_its_own(seen, tell):
    assert "2.5000" in tell(torch.tensor([0.5, 2.5]))
    assert "0.5" in str(torch.tensor(0.5)) + repr([torch.tensor(0.5)])
    assert not seen
