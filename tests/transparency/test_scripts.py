"""Every script of tests/scripts, shared out, is the sequential one: each step, each number.

The full sweep (1, 2, 3 and 4 workers) is `benchmarks/transparency`; here each script runs once, at
a number of workers that goes round.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reparto.errors import RefusedError
from reparto.spec import StrategyConfig
from reparto.verify import verify
from tests.forked import forked_workers

SCRIPTS = Path(__file__).parents[1] / "scripts"
REFUSED = {"char_rnn_names.py": "C204"}
TRAINED = [
    *sorted(path for path in SCRIPTS.glob("*.py") if path.name not in REFUSED),
    SCRIPTS / "project" / "train.py",
]


@pytest.fixture(scope="module", autouse=True)
def workers_by_fork():
    import pandas  # noqa: F401  # what takes long to import of what the scripts use
    import sklearn.datasets
    import sklearn.metrics
    import sklearn.model_selection  # noqa: F401

    with forked_workers():
        yield


def test_there_are_enough_scripts():
    assert len(TRAINED) >= 40


@pytest.mark.parametrize(
    ("script", "workers"),
    [
        pytest.param(path, 2 + number % 3, id=f"{path.stem}-{2 + number % 3}")
        for number, path in enumerate(TRAINED)
    ],
)
def test_shared_out_training_is_the_sequential_one(script, workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = verify(script, workers=workers, steps=20)
    assert result.verdict == "equal", result.divergence
    assert result.num_steps >= 20 or script.stem in ("sam_optimizer",)
    assert not list(tmp_path.iterdir()), "verify left something behind"


@pytest.mark.parametrize(
    "name",
    ["accumulation_clip_scheduler.py", "amp_gradscaler.py", "gan_noise.py", "lbfgs_sine.py",
     "param_groups.py", "resnet_bn.py", "word2vec_sgns.py"],
)  # fmt: skip
def test_servers_keep_it_the_same(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    strategy = StrategyConfig(kind="parameter-server", settings={"servers": 2})
    result = verify(SCRIPTS / name, workers=3, steps=20, strategy=strategy)
    assert result.verdict == "equal", result.divergence


@pytest.mark.parametrize("name", ["amp_gradscaler.py", "gan_noise.py", "param_groups.py"])
def test_dedicated_servers_keep_it_the_same(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"servers": 2, "dedicated": True}
    strategy = StrategyConfig(kind="parameter-server", settings=settings)
    result = verify(SCRIPTS / name, workers=4, steps=20, strategy=strategy)
    assert result.verdict == "equal", result.divergence


@pytest.mark.parametrize("name", ["digits_argparse.py", "gan_noise.py", "lbfgs_sine.py"])
def test_one_worker_agrees_to_the_last_bit(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        result = verify(SCRIPTS / name, workers=1, steps=20)
        farthest = max(one.distance for one in (*result.gradients, *result.tensors))
        if result.verdict == "equal" and farthest == 0.0:
            break
        assert any("does not repeat itself" in note for note in result.notes), farthest
    assert result.verdict == "equal", result.divergence
    assert farthest == 0.0


@pytest.mark.parametrize("name", ["amp_gradscaler.py", "compiled_model.py", "unet_dice.py"])
def test_in_float32_the_distance_is_that_of_rounding(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = verify(SCRIPTS / name, workers=2, steps=20, precision="float32")
    assert result.verdict == "equal", result.divergence
    assert result.precision == "float32"


@pytest.mark.parametrize(("name", "code"), REFUSED.items())
def test_what_cannot_be_shared_out_is_refused_with_its_reason(name, code):
    with pytest.raises(RefusedError, match=code):
        verify(SCRIPTS / name)
