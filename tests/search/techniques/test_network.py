"""The network for tables: as good as others on small tables, and the same on several workers."""

import numpy as np
import pytest
import torch
from sklearn import datasets

from reparto.errors import UsageError
from reparto.search._rows import Rows
from reparto.search.techniques._base import Setting
from reparto.search.techniques._network import Network
from reparto.search.techniques._network_module import Shape, TabularNetwork
from reparto.search.techniques._network_training import Course, Training
from reparto.spec import to_plain
from tests.forked import forked_workers
from tests.search.techniques.tables import facts_of, table

FEW = {"epochs": 6, "dropout": 0.0}


def split(bunch, domain, seed=0):
    """Facts, rows to train on, and others."""
    y = bunch.target.astype(np.float64 if domain == "regression" else np.int32)
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = bunch.data[order], y[order]
    num_classes = 0 if domain == "regression" else len(bunch.target_names)
    fourth = len(y) // 4
    facts = facts_of(x, domain, num_classes)
    return facts, Rows(x[fourth:], y[fourth:]), Rows(x[:fourth], y[:fourth])


def trained(facts, rows, settings=None, shares=(1.0,), **more):
    trainer = Network().trainer(settings or {}, Setting(facts=facts, **{"seed": 0, **more}))
    for share in shares:
        trainer.train(rows, share)
    return trainer


@pytest.mark.parametrize(
    ("load", "domain", "settings", "least"),
    [
        (datasets.load_breast_cancer, "binary", {}, 0.95),
        (datasets.load_wine, "multiclass", {}, 0.95),
        (datasets.load_digits, "multiclass", {"epochs": 10}, 0.94),
    ],
)
def test_small_tables_are_learnt_without_settings(load, domain, settings, least):
    facts, rows, others = split(load(), domain)
    answer = trained(facts, rows, settings).predict(others.x)
    assert np.mean(answer.labels == others.y) >= least


def test_diabetes_is_foretold_as_well_as_by_a_line():
    from sklearn.linear_model import LinearRegression

    facts, rows, others = split(datasets.load_diabetes(), "regression")
    line = LinearRegression().fit(rows.x, rows.y).predict(others.x)
    answer = trained(facts, rows).predict(others.x)
    errors = [np.sqrt(np.mean((one - others.y) ** 2)) for one in (answer.values, line)]
    assert errors[0] < 1.05 * errors[1]


def test_embedded_numbers_show_what_is_no_line():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, size=(400, 2))
    y = np.sin(9 * x[:, 0])
    settings = {"embedding": "periodic", "epochs": 40, "width": 64, "members": 1}
    network = trained(facts_of(x, "regression"), Rows(x[:300], y[:300]), settings)
    assert np.mean((network.predict(x[300:]).values - y[300:]) ** 2) < 0.1 * np.var(y)


def test_training_in_parts_is_training_at_once():
    facts, rows = table("regression", num_rows=200)
    once, parts = (
        trained(facts, rows, {"epochs": 9}, shares) for shares in ((1.0,), (1 / 9, 1 / 3, 1.0))
    )
    assert np.array_equal(once.predict(rows.x).values, parts.predict(rows.x).values)


def test_what_others_draw_at_random_neither_matters_nor_is_touched():
    facts, rows = table("binary", num_rows=200)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = trained(facts, rows, FEW).predict(rows.x).values
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert np.array_equal(trained(facts, rows, FEW).predict(rows.x).values, first)
    assert not np.array_equal(trained(facts, rows, FEW, seed=5).predict(rows.x).values, first)


def test_two_workers_of_the_runtime_train_the_same_network():
    facts, rows, others = split(datasets.load_breast_cancer(), "binary")
    alone = trained(facts, rows, FEW)
    with forked_workers():
        shared = trained(facts, rows, {**FEW, "workers": 2}, shares=(1 / 3, 1.0))
    assert shared.estimator.epoch == alone.estimator.epoch == 6
    assert shared.estimator.best_loss == pytest.approx(alone.estimator.best_loss, rel=1e-4)
    values = [one.predict(others.x).values for one in (alone, shared)]
    assert np.allclose(*values, atol=1e-3)


def test_training_ends_when_held_out_rows_are_foretold_no_better():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(300, 20)), random.normal(size=300)  # nothing to learn
    network = trained(facts_of(x, "regression"), Rows(x, y), {"epochs": 1000, "patience": 2})
    assert network.estimator.epoch < 40
    assert network.estimator.best_epoch < 20


def test_few_rows_are_all_trained_on():
    facts, rows = table("binary", num_rows=40)
    network = trained(facts, rows, {"epochs": 30})
    assert network.estimator.best == {}
    assert network.estimator.epoch == 30
    assert np.mean(network.predict(rows.x).labels == rows.y) > 0.9


def test_threads_are_as_many_as_before():
    before = torch.get_num_threads()
    facts, rows = table("binary", num_rows=40)
    trained(facts, rows, {"epochs": 1}, threads=before + 1)
    assert torch.get_num_threads() == before


def test_files_are_numbers_and_text_and_a_missing_one_is_told(tmp_path):
    facts, rows = table("multiclass", messy=True)
    trained(facts, rows, FEW).save(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.safetensors", "network.json"]
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"there is no .*model\.safetensors"):
        Network().load(tmp_path, {"settings": {}, "facts": to_plain(facts)})


def test_loss_that_is_no_number_is_a_failure():
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    training = Training(Shape(3, 3, 1), Course(5, 32, 1e30, 0.0, 8, 30, 0))
    with pytest.raises(ValueError, match=r"the network's loss is (nan|inf) after 1 epochs"):
        training.go_on(x, x[:, 0].copy(), 5)


def test_members_are_different_networks_that_share_their_layers():
    torch.manual_seed(0)
    network = TabularNetwork(Shape(num_inputs=4, num_numbers=4, num_outputs=2, members=3))
    answers = network.eval()(torch.randn(5, 4))
    assert answers.shape == (5, 3, 2)
    assert not torch.allclose(answers[:, 0], answers[:, 1])
    one = TabularNetwork(Shape(num_inputs=4, num_numbers=4, num_outputs=2, members=1))
    sizes = [sum(p.numel() for p in it.parameters()) for it in (one, network)]
    assert sizes[1] < 1.1 * sizes[0]
