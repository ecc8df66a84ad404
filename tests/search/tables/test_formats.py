"""Parquet, libsvm, ARFF and NumPy: what is in them, and what cannot be read of them."""

import gzip
import io

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_diabetes, load_wine

from reparto.errors import UsageError
from reparto.search._tables import read_rows, read_table
from reparto.spec import SearchRequest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("load", [load_breast_cancer, load_diabetes, load_wine])
@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "npz", "npy", "libsvm"])
def test_scikit_learns_data_sets_are_the_same_in_every_format(load, form, tmp_path):
    bunch = load(as_frame=True)
    path = tmp_path / f"data.{form}"
    x, y, names = bunch.data.values, bunch.target.values, list(bunch.data.columns)
    if form.startswith("csv"):
        bunch.frame.to_csv(path, index=False)
    elif form == "parquet":
        bunch.frame.to_parquet(path)
    elif form == "npz":
        np.savez(path, X=x, y=y, feature_names=np.array(names))
    elif form == "npy":
        np.save(path, np.column_stack([x, y]))
    else:
        dump_svmlight_file(x, y, str(path), zero_based=False)
    table = read_table(SearchRequest(data=str(path)))
    facts = table.facts
    np.testing.assert_allclose(table.x, x, rtol=1e-9)
    np.testing.assert_allclose(table.y, y)
    domain = {load_breast_cancer: "binary", load_diabetes: "regression", load_wine: "multiclass"}
    assert facts.domain == domain[load] and facts.format == form.split(".")[0].replace(
        "np" + form[2:], "numpy"
    )
    if form not in ("npy", "libsvm"):
        assert [column.name for column in facts.columns] == names
    rows = read_rows(path, facts)
    np.testing.assert_array_equal(rows.x, table.x)
    np.testing.assert_array_equal(rows.y, table.y)


# ----------------------------------------------------------------------------------- Parquet


def test_types_of_parquet_are_kept(tmp_path):
    import datetime

    count = 40
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(n) for n in range(count)]
    stamps = [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)] * 39 + [None]
    table = pa.table(
        {
            "whole": pa.array(range(count), pa.int16()),
            "half": pa.array(np.arange(count) / 2, pa.float32()),
            "money": pa.array(range(count), pa.int32()).cast(pa.decimal128(12, 2)),
            "is": [n % 2 == 0 for n in range(count)],
            "level": pa.array(["a", "b", "c", None] * 10).dictionary_encode(),
            "day": days,
            "stamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
            "list": [[n] for n in range(count)],
            "no": pa.nulls(count),
            "y": np.arange(count) + 0.5,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7)
    read = read_table(SearchRequest(data=str(tmp_path / "t.parquet"), target="y"))
    by_name = {column.name: column for column in read.facts.columns}
    assert [*by_name] == ["whole", "half", "money", "is", "level", "day", "stamp"]
    assert by_name["is"].levels == ("False", "True") and by_name["level"].num_missing == 10
    assert by_name["day"].kind == by_name["stamp"].kind == "date"
    np.testing.assert_array_equal(read.x[:3, 2], [0, 1, 2])
    assert read.x[1, 5] == 1577836800 + 86400 and read.x[0, 6] == 1577836800
    told = " ".join(read.facts.notes)
    assert "'list'" in told and "'no'" in told
    rows = read_rows(tmp_path / "t.parquet", read.facts)
    np.testing.assert_array_equal(rows.x, read.x)


def test_dates_are_no_classes(tmp_path):
    import datetime

    days = [datetime.date(2020, 1, 1 + n % 2) for n in range(40)]
    pq.write_table(pa.table({"x": range(40), "day": days}), tmp_path / "t.parquet")
    request = SearchRequest(data=str(tmp_path / "t.parquet"), domain="classification")
    with pytest.raises(UsageError, match="'day' holds dates, which are no classes"):
        read_table(request)


def test_a_damaged_parquet_file_is_refused(file, tmp_path):
    pq.write_table(pa.table({"x": range(100), "y": range(100)}), tmp_path / "good")
    damaged = (tmp_path / "good").read_bytes()[:-200]
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_table(SearchRequest(data=str(file(damaged, "bad.parquet"))))


# ------------------------------------------------------------------------------------ libsvm


def sparse_file(path, rows=300, columns=2000, base=1, packed=False, seed=0):
    rng = np.random.default_rng(seed)
    x = sparse.random(rows, columns, 0.02, "csr", random_state=rng)
    x.data = x.data.round(6)
    y = rng.choice([-1, 1], rows)
    out = io.BytesIO()
    dump_svmlight_file(x, y, out, zero_based=not base)
    path.write_bytes(gzip.compress(out.getvalue()) if packed else out.getvalue())
    return x, y


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_libsvm_stays_sparse_where_most_is_zero(tmp_path, base, packed):
    path = tmp_path / "data"
    x, y = sparse_file(path, base=base, packed=packed)
    table = read_table(SearchRequest(data=str(path)))
    assert sparse.isspmatrix_csr(table.x) and table.facts.is_sparse
    assert table.facts.classes == ("-1", "1") and table.facts.target == "label"
    np.testing.assert_array_equal(table.y, (y + 1) // 2)
    places = [int(column.name[1:]) - base for column in table.facts.columns]
    np.testing.assert_allclose(table.x.toarray(), x.toarray()[:, places], atol=1e-7)
    assert table.x.data.dtype == np.float64 and "% of the values are zero" in table.facts.notes[-1]
    rows = read_rows(path, table.facts)
    assert (rows.x != table.x).nnz == 0 and (rows.y == table.y).all()


def test_other_libsvm_rows_may_lack_columns_and_have_further_ones(tmp_path):
    sparse_file(tmp_path / "a")
    table = read_table(SearchRequest(data=str(tmp_path / "a")))
    some = int(table.facts.columns[3].name[1:])
    (tmp_path / "b").write_text(f"0 {some}:2.5 9999:1\n0\n")
    rows = read_rows(tmp_path / "b", table.facts, with_target=False)
    assert rows.x.shape == (2, len(table.facts.columns)) and rows.y is None
    assert rows.x[0, 3] == 2.5 and rows.x.nnz == 1
    with pytest.raises(UsageError, match="'label' is '0', which is none of the classes -1, 1"):
        read_rows(tmp_path / "b", table.facts)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1 3:1 2:1", "column 2 comes after column 3"),
        ("1 3:x", "'3:x' is no number of a column with a value"),
        ("yes 3:1", "the label 'yes' is no number"),
        ("1 3:1:4", "'3:1:4' is no number"),
    ],
)
def test_a_wrong_line_of_libsvm_is_told(read, line, why):
    lines = [f"{n % 2} 1:{n} 3:1" for n in range(100)]
    lines[77] = line
    with pytest.raises(UsageError, match=f"line 78: {why}"):
        read("\n".join(lines), "data.libsvm")


def test_libsvm_with_comments_and_queries_is_read(read):
    table = read("# made\n" + "\n".join(f"{n % 3} qid:{n} 1:{n} 2:{n}.5 # x" for n in range(60)))
    assert table.facts.domain == "multiclass" and table.x.shape == (60, 2)


def test_clustering_leaves_the_label_out(read):
    content = "\n".join(f"{n % 2} 1:{n} 2:{n * n}" for n in range(60))
    table = read(content, domain="clustering")
    assert table.y is None and table.facts.target == "" and table.x.shape == (60, 2)
    assert "label" in str(table.facts.notes)


def test_a_sparse_matrix_of_scipy_is_read(tmp_path):
    x = sparse.random(300, 1000, 0.02, "csr", random_state=np.random.default_rng(0))
    whole = sparse.hstack([x, sparse.csr_matrix(np.arange(300)[:, None] % 2)], format="csr")
    sparse.save_npz(tmp_path / "m.npz", whole)
    table = read_table(SearchRequest(data=str(tmp_path / "m.npz")))
    assert table.facts.is_sparse and table.facts.domain == "binary"
    assert table.facts.target == "c1000"


# -------------------------------------------------------------------------------------- ARFF

HEADER = """% a comment
@RELATION 'some data'

@attribute size REAL
@ATTRIBUTE 'the colour' {red, 'dark blue', green}
@attribute note string
@attribute day date "yyyy-MM-dd"
@attribute class {yes,no}
"""


def test_arff_says_what_columns_are(read):
    rows = [
        f"{n}.5, {('red', chr(39) + 'dark blue' + chr(39))[n % 2]},'it''s, {n}',"
        f'"2020-01-0{n % 9 + 1}",{("yes", "no")[n % 3 == 0]}'
        for n in range(40)
    ]
    rows[5] = "?,red,x,2020-01-01,yes"
    rows.insert(9, "% in between\n")
    table = read(HEADER + "@data\n" + "\n".join(rows), "d.arff")
    size, colour, day = table.facts.columns
    assert size.num_missing == 1 and day.kind == "date"
    assert colour.name == "the colour" and colour.levels == ("red", "dark blue", "green")
    assert table.facts.classes == ("yes", "no") and table.facts.domain == "binary"
    assert table.x[1, 1] == 1 and "'note'" in str(table.facts.notes)


def test_plain_arff_is_read_as_fast_as_csv_and_the_same_as_slowly(read, monkeypatch):
    rows = "\n".join(f"{n}.5 , red,a{n % 3},2020-01-0{n % 9 + 1}, yes" for n in range(2000))
    rows = rows.replace("\n13.5 , red", "\n?,'dark blue'").replace("a2,2020-01-03, yes", "?,?, no")
    content = HEADER + "@data\n" + rows
    fast = read(content, "d.arff")
    slow = read(content + "\n% a comment", "d.arff")
    assert fast.facts == slow.facts and fast.facts.columns[1].levels[1] == "dark blue"
    np.testing.assert_array_equal(fast.x, slow.x)


def test_sparse_arff_has_the_first_level_where_nothing_is_written(read, tmp_path):
    rows = [f"{{0 {n}.5, 4 no}}" if n % 3 else "{1 'dark blue', 2 some, 3 0}" for n in range(40)]
    header = HEADER.replace("note string", "note {none, some}").replace(
        'date "yyyy-MM-dd"', "numeric"
    )
    table = read(header + "@data\n" + "\n".join(rows), "d.arff")
    by_name = {column.name: place for place, column in enumerate(table.facts.columns)}
    assert table.facts.classes == ("yes", "no") and table.y[:3].tolist() == [0, 1, 1]
    assert table.x[0, by_name["the colour"]] == 1 and table.x[1, by_name["the colour"]] == 0
    assert table.x[1, by_name["size"]] == 1.5 and "day" not in by_name
    rows = read_rows(tmp_path / "d.arff", table.facts)
    np.testing.assert_array_equal(rows.x, table.x)
    np.testing.assert_array_equal(rows.y, table.y)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1,red,a,2020-01-01", "line 11: 4 values where 5"),
        ("one,red,a,2020-01-01,yes", "line 11: 'one' is no number, as 'size' is said to be"),
    ],
)
def test_a_wrong_row_of_arff_is_told(read, rows, told):
    good = "1,red,a,2020-01-01,yes\n"
    with pytest.raises(UsageError, match=told):
        read(HEADER + "@data\n" + good + rows + "\n" + good, "d.arff")


def test_an_arff_file_without_rows_or_types_is_refused(read):
    with pytest.raises(UsageError, match="has no @data"):
        read(HEADER)
    with pytest.raises(UsageError, match="line 2: there is no type 'colour'"):
        read("@relation r\n@attribute x colour\n@data\n1\n")


# ------------------------------------------------------------------------------------- NumPy


def test_an_array_with_named_fields_has_columns(tmp_path):
    made = np.zeros(30, dtype=[("size", "f4"), ("kind", "U5"), ("y", "i8")])
    made["size"], made["kind"], made["y"] = np.arange(30), ["a", "b", "c"] * 10, [0, 1] * 15
    np.save(tmp_path / "a.npy", made)
    table = read_table(SearchRequest(data=str(tmp_path / "a.npy")))
    assert [column.name for column in table.facts.columns] == ["size", "kind"]
    assert table.facts.columns[1].levels == ("a", "b", "c") and table.facts.target == "y"


def test_pictures_are_rows_of_numbers(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (50, 4, 4), np.uint8)
    np.savez(tmp_path / "p.npz", x_train=x, y_train=np.arange(50) % 5, x_test=x)
    table = read_table(SearchRequest(data=str(tmp_path / "p.npz")))
    np.testing.assert_array_equal(table.x, x.reshape(50, 16))
    assert table.facts.domain == "multiclass" and "'x_test'" in str(table.facts.notes)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"X": np.zeros((3, 2)), "y": np.zeros(4)}, "y is of"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, "none is called X"),
        ({"X": np.array([{}, {}]), "y": np.zeros(2)}, "would run what they hold"),
    ],
)
def test_arrays_that_are_no_table_are_refused(tmp_path, arrays, told):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=told):
        read_table(SearchRequest(data=str(tmp_path / "a.npz")))


def test_an_array_of_python_objects_is_refused_and_not_called_damaged(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(UsageError, match="would run what they hold"):
        read_table(SearchRequest(data=str(tmp_path / "a.npy")))


def test_a_single_row_of_numbers_is_no_table(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(5))
    with pytest.raises(UsageError, match="has no columns"):
        read_table(SearchRequest(data=str(tmp_path / "a.npy")))
