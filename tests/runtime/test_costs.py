"""What a step is told to have cost: waiting, bytes, loss; and where a run leaves."""

import json
import os

import pytest
import torch
from torch import nn

import reparto
from reparto.runtime._current import current
from reparto.runtime._events import EventWriter
from reparto.spec import Cluster, Host, Profile, StepRecord, StrategyConfig, wire_bytes
from reparto.strategies import AllReduce
from reparto.strategies._buckets import NUM_RIDERS
from reparto.testing import run_workers

LOCAL = StrategyConfig(kind="local-sgd", settings={"sync_every": 4})


def trained(num_steps=8, loss_of=lambda loss: loss.backward(), batch=8):
    """A worker's script; returns what the world told of each step, and the model."""
    records = []
    world = current()
    world.on_step = records.append
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, wanted = torch.randn(num_steps, batch, 6), torch.randn(num_steps, batch, 3)
    for inputs, targets in zip(data, wanted, strict=True):
        x, y = reparto.shard((inputs, targets))
        optimizer.zero_grad()
        loss_of(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    return records


def test_steps_of_all_reduce_send_what_its_traffic_foretells():
    records = run_workers(2, trained)[0]
    count, width = 6 * 3 + 3, 8  # these tests compute in float64
    profile = Profile(num_parameters=count, gradient_bytes=width * count)
    cluster = Cluster(hosts=(Host(name="a"), Host(name="b")))
    foretold = sum(m.wire_bytes(2) for m in AllReduce.Config().traffic(profile, cluster))
    beside = wire_bytes("all-reduce", width * (2 + NUM_RIDERS), 2)  # a flag a tensor, and riders
    assert {record.wire_bytes for record in records[1:]} == {foretold + beside}


def test_strategy_that_rarely_talks_sends_in_its_rounds_only():
    records = run_workers(2, trained, strategy=LOCAL, losses=True)[0]
    assert [record.step for record in records[1:] if record.wire_bytes] == [4, 8]


def test_waiting_is_a_part_of_the_time():
    for records in run_workers(2, trained):
        waited = sum(record.waited_s for record in records[1:])
        assert 0 < waited < records[-1].time_s - records[0].time_s


def test_single_worker_waits_for_nobody_and_sends_nothing():
    records = run_workers(1, trained)[0]
    assert sum(record.wire_bytes for record in records) == 0
    assert sum(record.waited_s for record in records) < 1e-3


def test_local_step_of_an_optimizer_is_no_waiting(monkeypatch):
    now = [0.0]

    def slow(self, closure=None):
        now[0] += 1000.0

    monkeypatch.setattr(torch.optim.SGD, "step", torch.optim.Optimizer.profile_hook_step(slow))
    monkeypatch.setattr("reparto.runtime._world.time.perf_counter", lambda: now[0])
    records = run_workers(1, trained)[0]
    assert records[-1].time_s == 8000.0
    assert sum(record.waited_s for record in records) == 0


@pytest.mark.parametrize("strategy", [None, LOCAL], ids=["exact", "apart"])
def test_losses_make_the_loss_of_every_step_known(strategy):
    alone = run_workers(1, trained, losses=True)[0]
    each = run_workers(2, trained, strategy=strategy, losses=True)
    assert (
        [record.samples for record in each[0]] == [record.samples for record in alone] == [8] * 8
    )
    for step, expected in enumerate(alone):
        mean = sum(records[step].loss for records in each) / 2
        assert mean == pytest.approx(expected.loss, rel=1e-5 if strategy is None else 0.2)


def test_asking_for_losses_does_not_change_them():
    silent = run_workers(2, trained, strategy=LOCAL)[0]
    asked = run_workers(2, trained, strategy=LOCAL, losses=True)[0]
    assert [record.loss for record in silent] == [None] * 8
    assert [record.wire_bytes for record in asked] == [record.wire_bytes for record in silent]


@pytest.mark.parametrize("size", [1, 2])
def test_loss_is_told_without_the_factor_of_a_grad_scaler(size):
    def scaled(loss):
        torch.amp.GradScaler("cpu", init_scale=1024.0).scale(loss).backward()

    plain = run_workers(size, trained, losses=True)[0]
    found = run_workers(size, lambda: trained(loss_of=scaled), losses=True)[0]
    assert found[0].loss == pytest.approx(plain[0].loss, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_samples_ends_the_script_with_the_step_that_uses_them_up(size):
    counted = []

    def work():
        try:
            trained()
        finally:
            counted.append(current().num_samples)

    with pytest.raises(SystemExit):
        run_workers(size, work, samples=20, losses=True)
    assert counted[0] == 24


def test_every_step_is_told_of_or_only_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr("reparto.runtime._events.STEP_EVENTS_EVERY_S", 60.0)

    def told(tells_every_step):
        path = tmp_path / str(tells_every_step)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        writer = EventWriter(fd)
        writer.tells_every_step = tells_every_step
        for step in range(1, 6):
            writer.step(StepRecord(step=step, time_s=0.0, samples=1))
        writer.done(0, {})
        os.close(fd)
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return [event["step"] for event in events if event["type"] == "step"]

    assert told(True) == [1, 2, 3, 4, 5]
    assert told(False) == [1, 5]


def test_update_by_hand_counts_as_a_step_of_a_single_worker():
    def work():
        records = []
        current().on_step = records.append
        weight = torch.zeros(4, requires_grad=True)
        for _ in range(3):
            x = reparto.shard(torch.randn(6, 4))
            loss = (x @ weight - 1).square().mean()
            loss.backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad.zero_()
        return records

    alone = run_workers(1, work, losses=True)[0]
    shared = run_workers(2, work, losses=True)[0]
    assert [(one.step, one.samples) for one in alone] == [(1, 6), (2, 6), (3, 6)]
    assert [one.loss for one in shared] == pytest.approx([one.loss for one in alone])
