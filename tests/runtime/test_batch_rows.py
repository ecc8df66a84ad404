"""Batches of another size than the script's: which loaders, how many, of which samples."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from reparto.runtime import _patches
from reparto.runtime._batch_rows import BatchRows
from reparto.spec import Options


class Growing(IterableDataset):
    def __iter__(self):
        return iter(range(1000))


@pytest.fixture
def install():
    notes = []

    def install(rows):
        made = BatchRows(SimpleNamespace(options=Options(batch_rows=rows), note=notes.append))
        made.install()
        return made, notes

    yield install
    _patches.uninstall()


def lists(loader):
    return [batch.tolist() for batch in loader]


def test_pass_has_as_many_batches_as_before_and_samples_come_once_more(install):
    made, notes = install(6)
    loader = DataLoader(range(10), batch_size=4)
    num_batches = len(loader)
    assert lists(loader) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 0, 1], [2, 3, 4, 5, 6, 7]]
    assert lists(loader)[0] == [0, 1, 2, 3, 4, 5]
    assert len(loader) == num_batches == 3
    assert made.most == 6
    assert notes == []


def test_samples_of_a_small_data_set_are_repeated_and_that_is_told_once(install):
    made, notes = install(25)
    loader = DataLoader(range(10), batch_size=5, shuffle=True)
    for _ in range(2):
        first, second = loader
        assert len(first) == len(second) == 25
        assert sorted(first[:10].tolist()) == sorted(first[10:20].tolist()) == list(range(10))
    assert made.most == 25
    assert len(notes) == 1 and "10 samples" in notes[0] and "25 rows" in notes[0]


def test_evaluation_is_left_alone_by_the_same_loader_too(install):
    made, _ = install(8)
    loader = DataLoader(range(10), batch_size=4)
    with torch.no_grad():
        assert [len(batch) for batch in loader] == [4, 4, 2]
    assert made.most == 0
    assert [len(batch) for batch in loader] == [8, 8, 8]
    with torch.no_grad():
        assert [len(batch) for batch in loader] == [4, 4, 2]


def test_without_a_size_batches_are_counted_and_left_as_they_are(install):
    made, _ = install(None)
    assert lists(DataLoader(range(10), batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert made.most == 4


def test_batch_sampler_of_the_scripts_own_and_an_iterable_data_set_are_resized(install):
    install(3)
    own = DataLoader(range(4), batch_sampler=[[3, 2], [1, 0]])
    assert lists(own) == [[3, 2, 1], [0, 3, 2]]
    assert next(iter(DataLoader(Growing(), batch_size=2))).tolist() == [0, 1, 2]


def test_loader_that_makes_no_batches_is_not_one_that_can_be_told(install):
    made, _ = install(3)
    assert len(lists(DataLoader(torch.arange(8).reshape(2, 4), batch_size=None))) == 2
    assert made.most == 0


def test_what_loader_processes_hold_ready_is_counted(install):
    made, _ = install(4)
    rows = torch.zeros(8, 100, dtype=torch.float32)
    for _ in DataLoader(rows, batch_size=2, num_workers=1, prefetch_factor=3):
        pass
    assert made.held_bytes == 3 * 4 * 100 * 4
