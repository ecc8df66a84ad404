"""Each snippet runs promoted, in a process of its own: there is no way back from ``promote``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from reparto.runtime._promote import nudge

SNIPPETS = {
    "factories": "assert torch.zeros(2).dtype == torch.randn(2).dtype == DOUBLE",
    "dtype_argument": "assert torch.ones(2, dtype=torch.float32).dtype == DOUBLE",
    "dtype_half": "assert torch.ones(2, dtype=torch.half).dtype == DOUBLE",
    "dtype_bfloat16": "assert torch.ones(2, dtype=torch.bfloat16).dtype == DOUBLE",
    "imported_name": """
        from torch import float32
        assert torch.ones(2, dtype=float32).dtype == DOUBLE
        """,
    "name_by_text": "assert getattr(torch, 'float16') == DOUBLE",
    "method_float": "assert torch.arange(3).float().dtype == DOUBLE",
    "method_half": "assert torch.ones(3).half().dtype == torch.ones(3).bfloat16().dtype == DOUBLE",
    "to": "assert torch.arange(3).to(torch.float32).dtype == DOUBLE",
    "to_device_and_dtype": "assert torch.ones(3).to('cpu', torch.half).dtype == DOUBLE",
    "type_of_dtype": "assert torch.arange(3).type(torch.float32).dtype == DOUBLE",
    "type_of_text": "assert torch.arange(3).type('torch.FloatTensor').dtype == DOUBLE",
    "type_of_class": "assert torch.arange(3).type(torch.FloatTensor).dtype == DOUBLE",
    "type_without_argument": "assert torch.ones(3).type() == 'torch.DoubleTensor'",
    "FloatTensor_of_list": "assert torch.FloatTensor([1, 2]).dtype == DOUBLE",
    "FloatTensor_of_sizes": "assert torch.FloatTensor(2, 3).dtype == DOUBLE",
    "Tensor_of_array": "assert torch.Tensor(np.ones(3, np.float32)).dtype == DOUBLE",
    "set_default_dtype": """
        torch.set_default_dtype(torch.float32)
        assert torch.ones(1).dtype == DOUBLE
        """,
    "set_default_tensor_type": """
        torch.set_default_tensor_type('torch.FloatTensor')
        assert torch.ones(1).dtype == DOUBLE
        """,
    "comparison_of_dtypes": """
        assert torch.ones(1).dtype == torch.float32 == torch.get_default_dtype()
        """,
    "from_numpy": "assert torch.from_numpy(np.ones(3, np.float32)).dtype == DOUBLE",
    "from_numpy_half": "assert torch.from_numpy(np.ones(3, np.float16)).dtype == DOUBLE",
    "tensor_of_array": "assert torch.tensor(np.ones(3, np.float32)).dtype == DOUBLE",
    "tensor_of_scalar": "assert torch.tensor(np.float32(1)).dtype == DOUBLE",
    "as_tensor": "assert torch.as_tensor(np.ones(3, np.float32)).dtype == DOUBLE",
    "asarray": "assert torch.asarray(np.ones(3, np.float32)).dtype == DOUBLE",
    "new_tensor": "assert torch.ones(1).new_tensor(np.ones(3, np.float32)).dtype == DOUBLE",
    "frombuffer": """
        data = torch.frombuffer(bytearray(np.float32([1, 2]).tobytes()), dtype=torch.float32)
        assert data.dtype == DOUBLE and data.tolist() == [1, 2]
        """,
    "frombuffer_of_doubles": """
        data = torch.frombuffer(bytearray(np.float64([1, 2]).tobytes()), dtype=torch.float64)
        assert data.tolist() == [1, 2]
        """,
    "leaf_stays_leaf": """
        w = torch.tensor(np.ones(3, np.float32), requires_grad=True)
        w.sum().backward()
        assert w.is_leaf and w.grad.dtype == DOUBLE
        """,
    "integers_stay": """
        assert torch.arange(3).dtype == torch.int64
        assert torch.ones(1, dtype=torch.bool).dtype == torch.bool
        assert torch.from_numpy(np.arange(3)).dtype == torch.int64
        assert torch.from_numpy(np.uint8([1])).dtype == torch.uint8
        """,
    "complex": """
        assert torch.ones(2, dtype=torch.cfloat).dtype == torch.complex128
        assert torch.fft.fft(torch.ones(2)).dtype == torch.complex128
        """,
    "numpy_round_trip": """
        array = torch.ones(3).numpy()
        assert array.dtype == np.float64
        assert torch.from_numpy(array.astype(np.float32)).dtype == DOUBLE
        """,
    "numpy_ufunc": "assert np.sin(torch.ones(2)).dtype == DOUBLE",
    "module_half": """
        assert nn.Linear(2, 2).half().weight.dtype == DOUBLE
        assert nn.Linear(2, 2).bfloat16().weight.dtype == DOUBLE
        """,
    "module_to": """
        assert nn.Linear(2, 2).to(torch.float32).weight.dtype == DOUBLE
        assert nn.Linear(2, 2).float().weight.dtype == DOUBLE
        """,
    "embedding_from_pretrained": """
        assert nn.Embedding.from_pretrained(torch.FloatTensor([[1.0]])).weight.dtype == DOUBLE
        """,
    "softmax_dtype": "assert torch.softmax(torch.ones(2), -1, dtype=torch.float).dtype == DOUBLE",
    "one_hot": "assert nn.functional.one_hot(torch.arange(3)).float().dtype == DOUBLE",
    "autocast": """
        with torch.autocast('cpu', dtype=torch.bfloat16):
            assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == DOUBLE
            assert torch.is_autocast_enabled('cpu')
        """,
    "autocast_decorator": """
        @torch.autocast('cpu')
        def forward(x):
            return nn.Linear(2, 2)(x)
        assert forward(torch.ones(1, 2)).dtype == DOUBLE
        """,
    "autocast_for_cuda": """
        with torch.amp.autocast('cuda', dtype=torch.float16, enabled=False):
            assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == DOUBLE
        """,
    "grad_scaler": """
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler('cpu', growth_interval=2)
        before = model.weight.detach().clone()
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(1, 2)).sum()).backward()
            scaler.unscale_(optimizer)
            assert model.weight.grad.eq(1).all()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2.0 ** 17
        assert torch.allclose(model.weight, before - 0.2)
        """,
    "grad_scaler_skips": """
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler('cpu')
        before = model.weight.detach().clone()
        scaler.scale(model(torch.full((1, 2), torch.inf)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0 ** 15 and torch.equal(model.weight, before)
        """,
    "compile": """
        model = nn.Linear(2, 2)
        assert torch.compile(model) is model
        assert torch.compile(model, mode='max-autotune') is model
        @torch.compile(backend='aot_eager')
        def double(x):
            return 2 * x
        assert double(torch.ones(1)) == 2
        model.compile()
        model(torch.ones(1, 2))
        assert notes == ['torch.compile is skipped in float64: the model runs eagerly']
        """,
    "fused_optimizers": """
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
            model = nn.Linear(2, 2)
            optimizer = kind(model.parameters(), lr=0.1, fused=True)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.step()
        """,
    "every_optimizer": """
        for name in ('Adadelta', 'Adamax', 'ASGD', 'NAdam', 'RAdam', 'RMSprop', 'Rprop', 'LBFGS'):
            model = nn.Linear(2, 2)
            optimizer = getattr(torch.optim, name)(model.parameters())
            def closure():
                optimizer.zero_grad()
                loss = model(torch.ones(1, 2)).square().sum()
                loss.backward()
                return loss
            optimizer.step(closure)
        """,
    "load": """
        loaded = torch.load(folder / 'state.pt')
        assert loaded['weight'].dtype == DOUBLE
        assert loaded['weight'].tolist() == EXPECTED
        """,
    "load_mapped": """
        assert torch.load(folder / 'state.pt', mmap=True)['weight'].tolist() == EXPECTED
        """,
    "load_module": """
        model = torch.load(folder / 'module.pt', weights_only=False)
        assert model.weight.dtype == DOUBLE and isinstance(model.weight, nn.Parameter)
        assert model.weight.is_leaf and model.weight.requires_grad
        """,
    "load_half": "assert torch.load(folder / 'half.pt')['weight'].dtype == DOUBLE",
    "load_optimizer": """
        assert torch.load(folder / 'adam.pt')['state'][0]['exp_avg'].dtype == DOUBLE
        """,
    "load_own": """
        torch.save({'a': torch.full((2,), 0.1)}, folder / 'own.pt')
        assert torch.load(folder / 'own.pt')['a'].tolist() == [0.1, 0.1]
        """,
    "load_into_module": """
        model = nn.Linear(2, 2)
        model.load_state_dict(torch.load(folder / 'state.pt'), assign=True)
        assert model(torch.ones(1, 2)).dtype == DOUBLE
        """,
    "pickle": "assert pickle.loads((folder / 'tensor.pkl').read_bytes()).dtype == DOUBLE",
    "deepcopy": "assert copy.deepcopy(nn.Linear(2, 2)).weight.dtype == DOUBLE",
    "safetensors_file": """
        from safetensors.torch import load_file
        assert load_file(folder / 'a.safetensors')['weight'].tolist() == EXPECTED
        """,
    "safetensors_bytes": """
        from safetensors.torch import load
        assert load((folder / 'a.safetensors').read_bytes())['weight'].tolist() == EXPECTED
        """,
    "safetensors_open": """
        from safetensors import safe_open
        with safe_open(folder / 'a.safetensors', framework='pt') as file:
            assert list(file.keys()) == ['weight']
            assert file.get_tensor('weight').dtype == DOUBLE
        assert torch.float32 == DOUBLE
        """,
    "safetensors_own": """
        from safetensors.torch import load_file, save_file
        save_file({'a': torch.full((2,), 0.1)}, folder / 'own.safetensors')
        assert load_file(folder / 'own.safetensors')['a'].tolist() == [0.1, 0.1]
        """,
    "layers": """
        x = torch.ones(2, 4, 8)
        for layer in (nn.LSTM(8, 8), nn.GRU(8, 8), nn.MultiheadAttention(8, 2)):
            out = layer(x) if not isinstance(layer, nn.MultiheadAttention) else layer(x, x, x)
            assert out[0].dtype == DOUBLE
        assert nn.TransformerEncoderLayer(8, 2)(x).dtype == DOUBLE
        assert nn.Conv1d(4, 4, 3)(x).dtype == nn.BatchNorm1d(4)(x).dtype == DOUBLE
        assert nn.functional.interpolate(x, scale_factor=2.0).dtype == DOUBLE
        """,
    "loader": """
        from torch.utils.data import DataLoader
        data = [(np.float32([1, 2]), 1.5, 3) for _ in range(4)]
        x, y, z = next(iter(DataLoader(data, batch_size=2)))
        assert x.dtype == y.dtype == DOUBLE and z.dtype == torch.int64
        """,
    "forked_loader": """
        from torch.utils.data import DataLoader
        data = [np.float32([1, 2]) for _ in range(4)]
        assert next(iter(DataLoader(data, batch_size=2, num_workers=1))).dtype == DOUBLE
        """,
    "distributions": "assert torch.distributions.Normal(0.0, 1.0).sample((2,)).dtype == DOUBLE",
    "torchscript": """
        def f(x):
            return torch.tensor([1.0]) + x * torch.zeros(1)
        assert torch.jit.trace(f, torch.ones(1))(torch.ones(1)).dtype == DOUBLE
        """,
    "functional_transforms": """
        grads = torch.func.vmap(torch.func.grad(lambda x: (x ** 2).sum()))(torch.ones(3, 2))
        assert grads.dtype == DOUBLE
        """,
    "printing": "assert repr(torch.ones(2, dtype=torch.float32)) == 'tensor([1., 1.])'",
    "testing": "torch.testing.assert_close(torch.ones(2).float(), torch.ones(2))",
    "tensorboard_numbers": "assert float(torch.ones(1)) == 1.0 and torch.ones(1).item() == 1.0",
    "twice": "promote(); promote(); assert torch.ones(1).float().dtype == DOUBLE",
}

# Forks for each snippet from a process in which torch is imported and nothing has been computed
# in parallel yet.
HARNESS = """
import copy, json, os, pickle, sys, traceback, warnings
from pathlib import Path
import numpy as np, torch
from torch import nn
from reparto.runtime._promote import promote
warnings.simplefilter("ignore")
DOUBLE, folder = torch.float64, Path(sys.argv[1])
torch.set_num_threads(1)
model = nn.Linear(2, 2)
EXPECTED = model.weight.detach().double().tolist()
torch.save(model.state_dict(), folder / "state.pt")
torch.save(model, folder / "module.pt")
torch.save(nn.Linear(2, 2).half().state_dict(), folder / "half.pt")
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 2)).sum().backward()
torch.save({"weight": torch.tensor(EXPECTED)}, folder / "w.pt")
optimizer.step()
torch.save(optimizer.state_dict(), folder / "adam.pt")
(folder / "tensor.pkl").write_bytes(pickle.dumps(torch.ones(2)))
from safetensors.torch import save_file
save_file({"weight": torch.tensor(EXPECTED)}, folder / "a.safetensors")
failures = {}
for name, code in json.load(sys.stdin).items():
    read, write = os.pipe()
    if os.fork() == 0:
        notes = []
        try:
            promote(notes.append)
            path = folder / f"{name}.py"
            path.write_text(code)
            exec(compile(code, path, "exec"))
            text = ""
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text[-4000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        failures[name] = pipe.read()
    os.wait()
print(json.dumps(failures))
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    snippets = {name: textwrap.dedent(code) for name, code in SNIPPETS.items()}
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", HARNESS, str(tmp_path_factory.mktemp("promote"))],
        input=json.dumps(snippets),
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", SNIPPETS)
def test_runs_in_float64(name: str, failures: dict[str, str]) -> None:
    assert not failures[name], failures[name]


def test_nudge_moves_every_element_by_one_ulp() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5] * 20, dtype=torch.float64))
    before = weight.detach().clone()
    nudge([weight], 1)
    moved = (weight - before).detach() / torch.finfo(torch.float64).eps
    assert moved.abs().min() >= 0.25
    assert moved.abs().max() <= 2
    assert (moved > 0).any()
    assert (moved < 0).any()


def test_nudge_is_the_same_each_time_and_draws_nothing() -> None:
    state = torch.get_rng_state()
    first, second = torch.ones(8), torch.ones(8)
    nudge([first, torch.arange(3)], 2)
    nudge([second, torch.arange(3)], 2)
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.ones(8))
    other = torch.ones(8)
    nudge([other], 3)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
