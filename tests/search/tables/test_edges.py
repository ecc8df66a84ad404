"""Files that are none, damaged, too small or too large: told, with what to do next."""

import os
import subprocess
import sys

import numpy as np
import pytest

from reparto.errors import MissingExtraError, UsageError
from reparto.search import _memory
from reparto.search._tables import _size, _survey, read_rows, read_table
from reparto.search._tables._size import Draw
from reparto.spec import SearchRequest


def rows_of(count, columns=3):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, columns)).round(4)
    names = ",".join(f"x{n}" for n in range(columns))
    body = "\n".join(",".join(map(str, row)) + f",{n}" for n, row in enumerate(x.tolist()))
    return f"{names},y\n{body}\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("\n\n  \n", "is empty"),
        ("x,y\n", "has a line of names, and no rows"),
        ("x,y\n1,2\n", "has a single row"),
        ("1,2\n", "has a single row"),
        ("a;b;c", "has a line of names, and no rows"),
        ("x" * 3_000_000, "has a line of more than 256 MiB, or but one"),
        (bytes(range(256)) * 20, "holds no text"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "is a picture"),
        (b"PK\x03\x04" + b"\x00" * 50, "is a zip archive"),
        (b"\x80\x04\x95" + b"\x00" * 50, "is a Python pickle"),
        (b"\xfd7zXZ\x00" + b"\x00" * 50, "is packed with xz"),
        ("x,y\n" + "\n".join(f",{n}" for n in range(30)), "no column is left"),
        ("x,y\n" + "\n".join(f"{n}," for n in range(30)), "the target 'y' has no values"),
        ("a,b,y\n1,2\n3,4\n5,6\n", "the first line names 3 columns, and the rows have 2"),
    ],
)
def test_what_is_no_table_is_refused_with_a_remedy(read, content, told):
    with pytest.raises(UsageError, match=told) as caught:
        read(content)
    assert caught.value.remedy


def test_what_is_no_file_is_refused(tmp_path, file):
    file("x,y\n1,2\n", "houses.csv")
    with pytest.raises(UsageError, match=r"(?s)there is no file.*did you mean houses\.csv"):
        read_table(SearchRequest(data=str(tmp_path / "house.csv")))
    with pytest.raises(UsageError, match="is a folder"):
        read_table(SearchRequest(data=str(tmp_path)))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        read_table(SearchRequest(data=str(tmp_path / "pipe")))


def test_a_file_that_may_not_be_read_is_refused(file, monkeypatch):
    path = file(rows_of(30))
    from pathlib import Path

    def refuse(self, *args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read all
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        read_table(SearchRequest(data=str(path)))


def test_huge_numbers_are_read(read):
    rows = [f"{10**30 + n * 10**27},{2**63 + n},{n}.5" for n in range(30)]
    table = read("a,b,y\n" + "\n".join(rows))
    np.testing.assert_allclose(table.x[:, 0], 1e30 + np.arange(30) * 1e27)


def test_without_pyarrow_the_extra_is_named(file, monkeypatch):
    path = file(rows_of(30))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"reparto\[search\]"):
        read_table(SearchRequest(data=str(path)))


# ---------------------------------------------------------------------------------------- rows


def test_rows_are_drawn_at_random_in_their_order_and_it_is_told(read):
    tables = [read(rows_of(500), rows=100, seed=seed) for seed in (0, 0, 1)]
    for table in tables:
        assert len(table.y) == 100 == table.facts.num_rows and table.facts.num_rows_in_file == 500
        assert (np.diff(table.y) > 0).all() and 150 < table.y.mean() < 350
        assert "100 of 500 rows are used" in "\n".join(table.facts.notes)
    assert (tables[0].y == tables[1].y).all() and (tables[0].y != tables[2].y).any()
    assert len(read(rows_of(50), rows=100).y) == 50


def test_each_row_has_the_same_chance_however_the_chunks_are():
    counts = np.zeros(30)
    for seed in range(1500):
        draw, start = Draw(10, 30, seed), 0
        chosen = []
        for size in (1, 12, 0, 17):
            chosen += draw.of(np.arange(start, start + size)).tolist()
            start += size
        assert len(chosen) == 10 and chosen == sorted(set(chosen))
        counts[chosen] += 1
    assert (abs(counts - 500) < 5 * np.sqrt(1500 * 2 / 9)).all()


def test_fewer_rows_than_none_cannot_be(read):
    with pytest.raises(UsageError, match="--rows 0"):
        read(rows_of(30), rows=0)


@pytest.mark.parametrize("name", ["data.csv", "data.libsvm"])
def test_of_a_table_that_does_not_fit_rows_are_drawn_and_it_is_told(read, monkeypatch, name):
    content = rows_of(2000)
    if name.endswith("libsvm"):
        content = "\n".join(f"{n % 2} 1:{n} 2:{n}.5 3:1.{n % 7}" for n in range(2000))
    monkeypatch.setattr(_size, "WIDE_BYTES", 1000)
    monkeypatch.setattr(_memory, "free_bytes", lambda: 50_000)
    table = read(content, name)
    assert 300 < table.facts.num_rows < 700 and table.facts.num_rows_in_file == 2000
    assert table.x.dtype == np.float32 and table.x.nbytes < 0.2 * 50_000
    assert "of 2000 rows are used, drawn at random: all of them take" in str(table.facts.notes)
    with pytest.raises(UsageError, match=r"2000 rows take .* in memory.*\n.*--rows \d+ at most"):
        read(content, name, rows=2000)
    assert read(content, name, rows=200).facts.num_rows == 200


@pytest.mark.parametrize("name", ["table.csv", "table.libsvm"])
def test_no_more_rows_are_used_than_there_is_time_for(read, monkeypatch, name):
    content = rows_of(2000)
    if name.endswith("libsvm"):
        content = "\n".join(f"{n % 2} 1:{n} 2:{n}.5 3:1.{n % 7}" for n in range(2000))
    monkeypatch.setattr(_size, "VALUES_A_SECOND", 20)
    monkeypatch.setattr(_size, "FEWEST_VALUES", 100)
    table = read(content, name, time_s=60.0)
    assert 100 < table.facts.num_rows < 1000 and table.facts.num_rows_in_file == 2000
    told = f"{table.facts.num_rows} of 2000 rows are used, drawn at random: no more can be"
    assert told in str(table.facts.notes) and "in 60 s" in str(table.facts.notes)
    assert read(content, name, time_s=60.0, rows=1500).facts.num_rows == 1500
    assert read(content, name, time_s=6000.0).facts.num_rows == 2000
    # Of a search that ends after a while by itself too, not of one that is to end otherwise.
    monkeypatch.setattr(_size, "OPEN_S", 60.0)
    assert read(content, name).facts.num_rows == table.facts.num_rows
    assert read(content, name, trials=5).facts.num_rows == 2000


def test_wide_table_keeps_rows_enough_however_short_the_time_is():
    size = _size.size_of(300, 200_000, None, "wide", 20.0)
    assert size.num_rows >= 100
    assert _size.size_of(60, 200_000, None, "wide", 20.0).num_rows == 60


def test_a_large_table_is_in_single_precision_and_what_it_loses_is_told(read, file, monkeypatch):
    monkeypatch.setattr(_size, "WIDE_BYTES", 1000)
    rows = [f"2020-01-01 00:{n % 60:02}:{n * 7 % 60:02},{n},{n}.5" for n in range(200)]
    table = read("when,x,y\n" + "\n".join(rows))
    assert table.x.dtype == np.float32
    told = "\n".join(table.facts.notes)
    assert "single precision" in told and "'when' is only exact to 128" in told
    assert "'x' is only" not in told
    other = read_rows(
        file("x,when\n1,2020-01-01 00:00:01\n", "o.csv"), table.facts, with_target=False
    )
    assert other.x.dtype == np.float32


def test_a_table_that_is_not_kept_is_read_twice_and_is_the_same(read, monkeypatch):
    content = rows_of(3000).replace("x1", "k").replace(",0.1", ",word")
    first = read(content)
    monkeypatch.setattr(_survey, "KEPT_BYTES", 0)
    second = read(content)
    assert first.facts == second.facts
    np.testing.assert_array_equal(first.x, second.x)


def test_a_large_file_takes_no_more_memory_than_its_rows_in_use(tmp_path):
    program = """
import resource, sys
from reparto.search import _memory
from reparto.search._tables import read_table, _survey
from reparto.spec import SearchRequest
_memory.free_bytes = lambda: 40_000_000
read_table(SearchRequest(data=sys.argv[2]))  # all is imported
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = read_table(SearchRequest(data=sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(peak * 1024, table.facts.num_rows, table.facts.num_rows_in_file)
"""
    block = np.random.default_rng(0).normal(size=(4000, 10)).round(6)
    text = "\n".join(",".join(map(str, row)) for row in block.tolist()) + "\n"
    (tmp_path / "large.csv").write_text(text * 100)  # 36 MB
    (tmp_path / "small.csv").write_text(text)
    told = subprocess.check_output(
        [sys.executable, "-c", program, tmp_path / "large.csv", tmp_path / "small.csv"],
        text=True,
        timeout=60,
    )
    peak, used, there = map(int, told.split())
    assert there == 400_000 and used == 200_000
    assert peak < (tmp_path / "large.csv").stat().st_size


# ----------------------------------------------------------------------------------- other rows


def test_other_rows_have_the_same_columns_in_any_order(read, file):
    table = read(
        "size,colour,when,y\n"
        + "\n".join(f"{n},{'ab'[n % 2]},{n % 28 + 1}/12/2020,{'no yes'.split()[n % 2]}"
                    for n in range(40))
    )  # fmt: skip
    path = file("y,extra,when,colour,size\nyes,7,03/12/2020,b,1.5\nno,,,purple,?\n", "other.csv")
    rows = read_rows(path, table.facts)
    day = 1606953600.0
    np.testing.assert_array_equal(rows.x, [[1.5, 1, day], [np.nan, np.nan, np.nan]])
    assert rows.y.tolist() == [1, 0] and rows.y.dtype == np.int32
    path = file("colour,size,when\na,3,3/12/2020\n", "bare.csv")
    rows = read_rows(path, table.facts, with_target=False)
    assert rows.x.tolist() == [[3, 0, day]] and rows.y is None


def test_other_rows_that_lack_a_column_or_a_target_are_refused(read, file):
    table = read(
        "a,b,y\n" + "\n".join(f"{n},{n * n},{'no yes'.split()[n % 2]}" for n in range(40))
    )
    with pytest.raises(UsageError, match=r"lacks 1 of 3 columns: 'b'\n.*it has 'a', 'c', 'y'"):
        read_rows(file("a,c,y\n1,2,yes\n", "o.csv"), table.facts)
    with pytest.raises(UsageError, match="lacks 1 of 3 columns: 'y'"):
        read_rows(file("a,b\n1,2\n", "o.csv"), table.facts)
    with pytest.raises(UsageError, match="row 2: 'y' is 'maybe', which is none of the classes no"):
        read_rows(file("a,b,y\n1,2,no\n1,2,maybe\n", "o.csv"), table.facts)
    with pytest.raises(UsageError, match="row 1: 'y' has no value"):
        read_rows(file("a,b,y\n1,2,\n", "o.csv"), table.facts)


def test_other_rows_without_names_are_known_by_their_place(read, file):
    body = "\n".join(f"{n % 2},{n},{n * n},7" for n in range(40))
    table = read(body, target="0")
    assert [column.name for column in table.facts.columns] == ["c1", "c2"]
    rows = read_rows(file("1,5,6,7\n", "o.csv"), table.facts)
    assert rows.x.tolist() == [[5, 6]] and rows.y.tolist() == [1]
    rows = read_rows(file("5,6,7\n", "o.csv"), table.facts, with_target=False)
    assert rows.x.tolist() == [[5, 6]]
    with pytest.raises(UsageError, match="has 2 columns without names"):
        read_rows(file("5,6\n", "o.csv"), table.facts, with_target=False)


def test_other_rows_may_be_of_another_format(read, file, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = read("k,x,y\n" + "\n".join(f"{n % 3},{n},{n % 2}" for n in range(60)), domain="binary")
    pq.write_table(
        pa.table({"x": [1, 2], "k": [2, None], "y": [1.0, 0.0]}), tmp_path / "o.parquet"
    )
    rows = read_rows(tmp_path / "o.parquet", table.facts)
    np.testing.assert_array_equal(rows.x, [[2, 1], [np.nan, 2]])
    assert rows.y.tolist() == [1, 0]


def test_other_rows_with_words_among_numbers_are_missing_there(read, file):
    table = read("a,y\n" + "\n".join(f"{n},{n}.5" for n in range(40)))
    rows = read_rows(file("a\n1\nbroken\n3\n", "o.csv"), table.facts, with_target=False)
    np.testing.assert_array_equal(rows.x, [[1], [np.nan], [3]])


def test_other_rows_are_read_in_the_form_of_the_known_ones(read, file):
    texts = ("1,234", "999", "56,789", "12")
    content = "x\ty\n" + "".join(f"{texts[n % 4]}\t{texts[-n % 4]}\n" for n in range(80))
    facts = read(content, domain="regression").facts
    rows = read_rows(file("x\ty\n1,234\t2,345\n5,678\t6,789\n"), facts)
    assert rows.x[:, 0].tolist() == [1234, 5678]
    assert rows.y.tolist() == [2345, 6789]


def test_the_target_of_other_rows_is_read_as_it_was_written(read, file):
    content = "Preis;x\n" + "".join(f"1.{n:03},5 €;{n},25\n" for n in range(40))
    table = read(content, target="Preis")
    rows = read_rows(file(content, "o.csv"), table.facts)
    np.testing.assert_array_equal(rows.y, table.y)
    np.testing.assert_array_equal(rows.x, table.x)
    assert rows.y[3] == 1003.5 and rows.x[3, 0] == 3.25


def test_packed_arrays_that_do_not_fit_are_refused_with_the_way_to_do_it(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)), y=np.arange(1000))
    monkeypatch.setattr(_memory, "free_bytes", lambda: 1_000_000)
    with pytest.raises(UsageError, match=r"0\.000808 GB.*\n.*np\.save as \.npy"):
        read_table(SearchRequest(data=str(tmp_path / "a.npz")))
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=(1000, 100)))
    table = read_table(SearchRequest(data=str(tmp_path / "a.npy")))
    assert table.facts.num_rows < 600 and table.facts.num_rows_in_file == 1000
