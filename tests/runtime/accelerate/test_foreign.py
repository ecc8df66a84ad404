"""Tensors whose memory is numpy's: nobody tells when it changes, so copies are made anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reparto.runtime.accelerate._found import is_foreign
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._resident import Rows


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (torch.from_numpy, True),
        (lambda array: torch.from_numpy(array)[1:], True),
        (torch.as_tensor, True),
        (torch.tensor, False),
        (lambda array: torch.zeros(3), False),
        (lambda array: torch.zeros(3).share_memory_(), True),
    ],
)
def test_memory_that_others_may_change_is_known(make, expected):
    assert is_foreign(make(np.zeros(3))) is expected


def test_data_of_numpys_are_copied_again_for_each_pass():
    array = np.arange(3.0)
    theirs, own = torch.from_numpy(array), torch.zeros(3)
    rows = Rows([theirs.clone(), own.clone()])
    array += 10
    rows.refresh((theirs, own))
    assert rows(torch.tensor([2]))[0].tolist() == [12.0]


@pytest.mark.parametrize(("make", "is_kept"), [(torch.from_numpy, False), (torch.tensor, True)])
def test_only_copies_of_torchs_own_memory_are_kept(make, is_kept):
    home = Home(torch.device("meta"))  # it stands for a GPU
    home._is_gpu = True
    tensor = make(np.zeros(3))
    _, second, third = (home.on_device(tensor) for _ in range(3))
    assert (second is third) is is_kept


def test_tensors_whose_changes_nobody_counts_are_copied_each_time():
    home = Home(torch.device("meta"))
    home._is_gpu = True
    with torch.inference_mode():
        mask = torch.ones(3)
        made = [home.on_device(mask) for _ in range(3)]
    assert all(one.device.type == "meta" for one in made)
