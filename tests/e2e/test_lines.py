"""Workers on lines that they play: the same training, as slow as the lines make it."""

import pytest
from tests.forked import forked_workers
from tests.patience import measured

from reparto import api
from reparto.spec import Cluster, Host, Line, Options, Plan, StrategyConfig

pytestmark = pytest.mark.alone

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(128, 64)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
"""


RATE = 20e6
LINE = Line(up_bits_per_s=RATE, down_bits_per_s=RATE)


@pytest.fixture(scope="module", autouse=True)
def workers_by_fork():
    with forked_workers():
        yield


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains on hosts with these lines, one worker each."""
    folder = tmp_path_factory.mktemp("lines")
    path = folder / "train.py"
    path.write_text(SCRIPT)
    program = api.convert(path).program

    def trained(*lines, kind="all-reduce", **settings):
        names = tuple("abcdef"[: len(lines)])
        hosts = tuple(Host(name=name, line=line) for name, line in zip(names, lines, strict=True))
        plan = Plan(
            strategy=StrategyConfig(kind=kind, settings=settings),
            num_workers=len(lines),
            placement=names,
            threads_per_worker=1,
        )
        cluster = Cluster(hosts=hosts)
        result = api.execute(program, plan, Options(), cluster=cluster, cwd=str(folder))
        assert (result.status, result.num_steps) == ("done", 16), result.failure
        return result

    return trained


@pytest.mark.parametrize("lines", [(LINE, LINE), (None, LINE)], ids=["both", "one"])
@measured()
def test_training_takes_as_long_as_its_bytes_ask_for_and_comes_to_the_same_loss(train, lines):
    quick, slow = train(None, None), train(*lines)
    if (slow.final_loss, slow.wire_bytes) != (quick.final_loss, quick.wire_bytes):
        pytest.fail(f"another training: {slow} {quick}")
    expected_s = 8 * slow.wire_bytes / RATE * 15 / 16  # the clock starts after the first step
    assert expected_s > 0.5
    assert slow.train_s - quick.train_s == pytest.approx(expected_s, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "settings"), [("parameter-server", {"mode": "async"}), ("gossip", {})]
)
def test_messages_between_two_come_through_where_only_one_host_has_a_line(train, kind, settings):
    result = train(Line(up_bits_per_s=50e6, delay_s=0.002), None, kind=kind, **settings)
    assert result.final_loss is not None


def test_places_are_chosen_by_what_the_lines_let_through(train):
    thin, thick = Line(up_bits_per_s=10e6, down_bits_per_s=10e6), None
    result = train(thin, thick, thick, kind="parameter-server")
    (note,) = (note for note in result.notes if "in the order" in note)
    assert "order 0" not in note  # the server stands first, and not on the thin line
