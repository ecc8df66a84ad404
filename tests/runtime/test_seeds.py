"""All workers draw the same random numbers; each keeps its own temporary names."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from reparto.runtime import _seeds

Share = Callable[..., None]


@pytest.fixture
def share() -> Iterator[Share]:
    def start(seed: int = 7, agree: Callable[[int], int] = lambda value: value) -> None:
        _seeds.share_randomness(seed, agree)

    yield start
    _seeds.restore()


def drawn_without_a_seed() -> list[Any]:
    """One number of each source that would ask the system, the clock or the process id."""
    random.seed()
    from_random = random.random()
    np.random.seed()
    from_numpy = np.random.random()
    torch.seed()
    from_torch = torch.rand(()).item()
    generator = torch.Generator()
    generator.seed()
    return [
        *(from_random, from_numpy, from_torch, torch.rand((), generator=generator).item()),
        *(random.Random().random(), random.SystemRandom().random(), secrets.token_hex()),
        *(np.random.default_rng().random(), np.random.RandomState().random_sample()),
        *(np.random.SeedSequence().entropy, np.random.PCG64().random_raw()),
        *(np.random.Generator(np.random.Philox()).random(), torch.random.seed()),
        *(os.urandom(4), uuid.uuid4(), uuid.uuid1(), secrets.randbelow(10**9)),
    ]


def test_every_source_without_a_seed_repeats_with_the_runs_seed(share: Share) -> None:
    share(7)
    first = drawn_without_a_seed()
    share(7)
    assert drawn_without_a_seed() == first


def test_another_seed_of_the_run_changes_every_source(share: Share) -> None:
    share(7)
    first = drawn_without_a_seed()
    share(8)
    assert not any(a == b for a, b in zip(first, drawn_without_a_seed(), strict=True))


def test_a_site_that_asks_again_gets_other_numbers(share: Share) -> None:
    share()
    assert len({uuid.uuid4() for _ in range(5)}) == 5
    assert len({np.random.default_rng().random() for _ in range(5)}) == 5
    assert len({torch.Generator().seed() for _ in range(5)}) == 5


def test_global_generators_start_from_the_runs_seed(share: Share) -> None:
    share(3)
    drawn = random.random(), np.random.random(), torch.rand(()).item()
    expected = random.Random(3).random(), np.random.RandomState(3).random_sample()
    assert drawn[:2] == expected
    assert drawn[2] == torch.rand((), generator=torch.Generator().manual_seed(3)).item()
    assert torch.initial_seed() == 3


def test_draws_of_a_library_elsewhere_do_not_shift_the_scripts(share: Share) -> None:
    library: dict[str, Any] = {"__name__": "some_tracker"}
    exec("import uuid\ndef new_id(): return uuid.uuid4()", library)

    def script(uses_library: bool) -> uuid.UUID:
        if uses_library:  # only worker 0 has the tracker
            library["new_id"]()
        return uuid.uuid4()

    share()
    on_main = script(uses_library=True)
    share()
    assert script(uses_library=False) == on_main


@pytest.mark.parametrize("seed", [random.seed, np.random.seed, torch.manual_seed])
def test_a_seed_from_the_clock_is_agreed_upon(share: Share, seed: Callable[[int], Any]) -> None:
    module = {"seed": random, "manual_seed": torch}.get(seed.__name__, random)
    module = np.random if seed is np.random.seed else module
    asked: list[int] = []

    def agree(value: int) -> int:
        asked.append(value)
        return 42

    def draw() -> float:
        return random.random() + np.random.random() + torch.rand(()).item()

    share(1)
    getattr(module, seed.__name__)(42)
    expected = draw()
    share(1, agree)
    now_s = int(time.time())
    getattr(module, seed.__name__)(now_s)  # on worker 0 it was 42
    assert draw() == expected
    assert asked == [now_s]


def test_a_float_seed_is_agreed_upon_bit_by_bit(share: Share) -> None:
    sent: list[int] = []
    share(agree=lambda value: sent.append(value) or value)
    random.seed(1.5)
    share(agree=lambda value: sent[0])
    random.seed(2.5)
    assert random.random() == random.Random(1.5).random()


def test_seeds_that_are_not_numbers_and_seeds_of_instances_are_left_alone(share: Share) -> None:
    def refuse(value: int) -> int:
        raise AssertionError("nobody else makes this call")

    share(agree=refuse)
    random.seed("text")
    assert random.random() == random.Random("text").random()
    random.seed(2**200)
    np.random.seed([1, 2])
    torch.Generator().manual_seed(5)
    np.random.default_rng(5)


def test_threads_seed_without_asking_the_other_workers(share: Share) -> None:
    asked: list[int] = []
    share(agree=lambda value: asked.append(value) or value)
    thread = threading.Thread(target=torch.manual_seed, args=(5,))
    thread.start()
    thread.join()
    assert asked == []


class NamedItems(Dataset[tuple[str, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[str, int]:
        torch.manual_seed(index)  # must not wait for other workers
        return str(uuid.uuid4()), os.getpid()


def test_data_loader_children_draw_apart_from_each_other_and_alike_in_every_run(
    share: Share,
) -> None:
    def names() -> list[str]:
        pid = os.getpid()

        def agree(value: int) -> int:
            assert os.getpid() == pid
            return value

        share(7, agree)
        loader = DataLoader(
            NamedItems(),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=multiprocessing.get_context("fork"),
        )
        return [name for name, _ in loader]

    first = names()
    assert len(set(first)) == 4
    # The forks are counted from the run's start.
    assert names() == first


def test_two_workers_draw_alike_but_name_their_temporary_files_apart(tmp_path: Path) -> None:
    script = tmp_path / "draw.py"
    script.write_text(
        "import sys, tempfile\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from reparto.runtime._seeds import share_randomness\n"
        "from test_seeds import drawn_without_a_seed\n"
        "share_randomness(11, lambda value: value)\n"
        "print(next(tempfile._get_candidate_names()), next(tempfile._RandomNameSequence()))\n"
        "print(drawn_without_a_seed())\n"
    )
    runs = [
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    (names_0, drawn_0), (names_1, drawn_1) = (run.stdout.splitlines() for run in runs)
    assert drawn_0 == drawn_1
    assert not set(names_0.split()) & set(names_1.split())


def test_temporary_names_stay_private_within_one_process_too(share: Share) -> None:
    share(7)
    first = next(tempfile._RandomNameSequence())  # type: ignore[attr-defined]
    share(7)
    assert next(tempfile._RandomNameSequence()) != first  # type: ignore[attr-defined]


def test_classes_stay_classes(share: Share) -> None:
    share()

    class Mine(random.Random):
        pass

    assert isinstance(Mine(), random.Random)
    assert isinstance(torch.Generator(), torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance("text", torch.Generator)

    class Own(torch.Generator):  # type: ignore[misc]
        pass

    assert isinstance(Own(), torch.Generator)
    assert not isinstance(torch.Generator(), Own)
    assert torch.randperm(4, generator=torch.Generator(device="cpu")).shape == (4,)


def test_generators_can_be_pickled(share: Share) -> None:
    share()
    numpy_generator = np.random.default_rng()
    copy = pickle.loads(pickle.dumps(numpy_generator))
    assert copy.random() == numpy_generator.random()
    python_generator = random.Random()
    assert pickle.loads(pickle.dumps(python_generator)).random() == python_generator.random()
    torch_generator = torch.Generator().manual_seed(3)
    again = pickle.loads(pickle.dumps(torch_generator))
    assert torch.equal(torch.rand(3, generator=again), torch.rand(3, generator=torch_generator))


def test_names_that_a_script_imports_are_the_patched_ones(share: Share) -> None:
    share(agree=lambda value: 9)
    from random import seed

    from torch import manual_seed

    seed(1)
    manual_seed(1)
    assert random.random() == random.Random(9).random()
    assert torch.initial_seed() == 9


def test_restore_puts_everything_back(share: Share) -> None:
    def state() -> list[Any]:
        owners = (os.urandom, random._urandom, random.seed, random.Random.seed, uuid.uuid1)
        return [*owners, np.random.seed, torch.seed, torch.manual_seed, torch.Generator]

    before = state()
    share()
    kept = torch.manual_seed
    assert not any(a is b for a, b in zip(before, state(), strict=True))
    _seeds.restore()
    assert all(a == b for a, b in zip(before, state(), strict=True))
    kept(5)  # bound by a script before: works, and asks nobody
    assert torch.initial_seed() == 5
    assert os.urandom(8) != os.urandom(8)
