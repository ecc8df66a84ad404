"""Board: what workers see is the same memory, in the layout's order, and nobody writes to it."""

import os
import pickle
import resource
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from scipy import sparse

from reparto.errors import UsageError
from reparto.search import _board, _shared_file
from reparto.search._board import Board
from reparto.search._folds import lay_out
from reparto.search._rows import Rows
from reparto.search._shared_file import SharedFile
from reparto.search._tables import Table
from reparto.spec import TableFacts


def table_of(kind="dense", rows=103, columns=7, dtype=np.float64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)).astype(dtype)
    x[rng.random(x.shape) < 0.7] = 0.0
    y = rng.integers(0, 2, rows).astype(np.int32)
    facts = TableFacts(domain="binary", classes=("a", "b"), is_sparse=kind == "csr")
    return Table(facts, sparse.csr_matrix(x) if kind == "csr" else x, y)


def dense(x):
    return x if isinstance(x, np.ndarray) else x.toarray()


def backing(x):
    return x if isinstance(x, np.ndarray) else x.data


@pytest.fixture(params=["dense", "csr"])
def kind(request):
    return request.param


@pytest.fixture
def laid(kind):
    table = table_of(kind)
    layout = lay_out(table, folds=5, split="stratified", seed=0)
    test = Rows(table.x[:9], table.y[:9])
    board = Board.put(table, layout, test)
    yield table, layout, board
    board.close()


def test_each_window_holds_the_rows_that_the_layout_names(laid):
    table, layout, board = laid
    seen, x = board.seen(), dense(table.x)
    assert seen.facts == table.facts and seen.num_folds == 5
    for fold, windows in enumerate(layout.folds):
        for rows, window in ((seen.train(fold), windows.train), (seen.tested(fold), windows.test)):
            order = layout.order[window.start : window.stop]
            np.testing.assert_array_equal(dense(rows.x), x[order])
            np.testing.assert_array_equal(rows.y, table.y[order])
    order = layout.order[layout.all.start : layout.all.stop]
    np.testing.assert_array_equal(dense(seen.all().x), x[order])
    np.testing.assert_array_equal(dense(seen.test.x), x[:9])
    np.testing.assert_array_equal(seen.test.y, table.y[:9])


def test_folds_are_views_of_one_memory_that_cannot_be_written_to(laid):
    _, _, board = laid
    seen = board.seen()
    whole = board.arrays()["x" if isinstance(seen.all().x, np.ndarray) else "data"]
    some = [seen.train(0), seen.train(4), seen.tested(2), seen.all(), seen.train(1).head(0.3)]
    for rows in some:
        assert np.shares_memory(backing(rows.x), whole)
        assert not backing(rows.x).flags.owndata and not rows.y.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            backing(rows.x)[:1] = 5
        with pytest.raises(ValueError, match="read-only"):
            rows.y[0] = 1
    assert np.shares_memory(some[0].y, board.arrays()["y"])


def test_scikit_learn_trains_on_what_cannot_be_written_to(laid):
    from sklearn.linear_model import LogisticRegression

    rows = laid[2].seen().train(0)
    assert LogisticRegression().fit(rows.x, rows.y).predict(rows.x).shape == rows.y.shape


def test_another_process_reads_the_same_memory(laid, tmp_path):
    _, _, board = laid
    pickled = pickle.dumps(board)
    assert len(pickled) < 3000
    (tmp_path / "board").write_bytes(pickled)
    program = """
import pickle, sys
board = pickle.load(open(sys.argv[1], "rb"))
rows = board.seen().train(3)
print(float(rows.x.sum()), int(rows.y.sum()))
"""
    told = subprocess.check_output(
        [sys.executable, "-c", program, str(tmp_path / "board")], text=True, timeout=60
    )
    rows = board.seen().train(3)
    assert told.split() == [str(float(rows.x.sum())), str(int(rows.y.sum()))]


def test_what_is_seen_can_be_read_after_the_board_is_closed_and_not_be_seen_anew(laid):
    _, _, board = laid
    copy = pickle.loads(pickle.dumps(board))
    rows, stranger = board.seen().all(), pickle.loads(pickle.dumps(board))
    total = rows.x.sum()
    assert copy.seen().all().x.sum() == total
    board.close()
    board.close()
    assert rows.x.sum() == total == copy.seen().all().x.sum()
    with pytest.raises(UsageError, match="cannot be reached"):
        stranger.seen()


def test_a_descriptor_that_was_given_to_another_file_is_not_taken_for_the_board():
    board = Board.put(table_of(), lay_out(table_of(), folds=2, split="plain", seed=0))
    copy, file = pickle.loads(pickle.dumps(board)), board._file
    other = os.memfd_create("other")
    os.ftruncate(other, file._size)
    os.dup2(other, file._fd)
    os.close(other)
    with pytest.raises(UsageError, match="cannot be reached"):
        copy.seen()
    board.close()


def test_a_board_of_another_hosts_arrays_shows_the_same_without_a_copy(laid):
    _, _, board = laid
    shipped = {name: np.array(value) for name, value in board.arrays().items()}
    other = Board.of_arrays(pickle.loads(pickle.dumps(board.plan)), shipped)
    name = "x" if "x" in shipped else "data"
    for there, here in (
        (other.seen().train(2), board.seen().train(2)),
        (other.seen().test, board.seen().test),
    ):
        np.testing.assert_array_equal(dense(there.x), dense(here.x))
        np.testing.assert_array_equal(there.y, here.y)
    assert np.shares_memory(backing(other.seen().train(2).x), shipped[name])
    assert not backing(other.seen().train(2).x).flags.writeable
    assert other.num_bytes == board.num_bytes
    again = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(again.seen().all().y, board.seen().all().y)


@pytest.mark.parametrize("chunk_bytes", [1, 300, 1 << 20])
def test_the_size_of_the_chunks_changes_nothing(kind, chunk_bytes, monkeypatch):
    monkeypatch.setattr(_board, "CHUNK_BYTES", chunk_bytes)
    table = table_of(kind, dtype=np.float32)
    layout = lay_out(table, folds=3, split="plain", seed=0)
    board = Board.put(table, layout)
    order = layout.order[layout.folds[1].train.start : layout.folds[1].train.stop]
    rows = board.seen().train(1)
    np.testing.assert_array_equal(dense(rows.x), dense(table.x)[order])
    assert rows.x.dtype == np.float32 and board.seen().test is None
    board.close()


def test_clustering_has_no_target(kind):
    table = table_of(kind)
    table = Table(TableFacts(domain="clustering"), table.x)
    board = Board.put(table, lay_out(table, folds=1, split="plain", seed=0))
    assert board.seen().train(0).y is None and len(board.seen().all()) == 103
    board.close()


def test_what_does_not_fit_into_memory_lies_on_disk_and_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(_shared_file, "free_bytes", lambda: 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = table_of()
    board = Board.put(table, lay_out(table, folds=2, split="plain", seed=0))
    assert board._file.where.startswith("disk") and not list(tmp_path.iterdir())
    seen = pickle.loads(pickle.dumps(board)).seen()
    assert len(seen.all()) == 103
    board.close()


def test_too_large_for_the_disk_too_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(_shared_file, "free_bytes", lambda: 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match=r"0\.00 GB of free memory.*\n.*--rows N"):
        SharedFile.of_size(1 << 60)
    assert not list(tmp_path.iterdir())


def test_laying_out_takes_no_second_copy():
    program = """
import resource
import numpy as np
from reparto.search._board import Board
from reparto.search._rows import FoldWindows, Layout, Window
from reparto.search._tables import Table
from reparto.spec import TableFacts
x = np.ones((400_000, 50), np.float32)  # 80 MB
order = np.arange(400_000)[::-1]
layout = Layout(order, (FoldWindows(Window(9, 400_000), Window(0, 9)),), Window(0, 400_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
board = Board.put(Table(TableFacts(), x), layout)
assert board.seen().all().x[-1, -1] == 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / x.nbytes)
"""
    told = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    assert float(told) < 1.7  # one is the board itself


def test_no_descriptor_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        board = Board.put(table_of(), lay_out(table_of(), folds=2, split="plain", seed=0))
        board.seen()
        board.close()
        del board
    assert len(os.listdir("/proc/self/fd")) <= before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before
