"""What columns and questions are taken for, and that it is told."""

import numpy as np
import pytest

from reparto.errors import UsageError


def lines(header, rows):
    return header + "\n" + "\n".join(",".join(map(str, row)) for row in rows)


def told(table):
    return "\n".join(table.facts.notes)


# ----------------------------------------------------------------------------------- the target


@pytest.mark.parametrize(
    ("values", "domain", "classes"),
    [
        ([0, 1], "binary", ("0", "1")),
        ([-1, 1], "binary", ("-1", "1")),
        ([1.5, 2.5], "binary", ("1.5", "2.5")),
        (["yes", "no"], "binary", ("no", "yes")),
        (["True", "False"], "binary", ("False", "True")),
        (["+", "-"], "binary", ("+", "-")),
        (["None", "Apnea", "Insomnia"], "multiclass", ("Apnea", "Insomnia", "None")),
        ([3, 4, 5, 6, 10], "multiclass", ("3", "4", "5", "6", "10")),
        (["10", "9", "b", "a"], "multiclass", ("9", "10", "a", "b")),
        ([0.5, 1.5, 2.5], "regression", ()),
        (list(range(25)), "regression", ()),
    ],
)
def test_the_domain_is_inferred_from_the_target_and_told(read, values, domain, classes):
    rows = [(n, values[n * 7 % len(values)]) for n in range(90)]
    table = read(lines("x,y", rows))
    assert table.facts.domain == domain and table.facts.classes == classes
    assert "of 'y'" in told(table)
    if classes:
        assert table.facts.class_counts == tuple(np.bincount(table.y).tolist())
        assert table.y.dtype == np.int32
        assert [classes[it] for it in table.y[:9]] == [str(row[1]) for row in rows[:9]]
    else:
        assert table.y.dtype == np.float64


def test_few_rows_of_whole_numbers_are_no_classes(read):
    assert read(lines("x,y", [(n, 2 * n) for n in range(12)])).facts.domain == "regression"


def test_what_the_user_says_of_the_domain_goes_first(read):
    rows = [(n, n % 3) for n in range(30)]
    assert read(lines("x,y", rows), domain="regression").y[2] == 2.0
    with pytest.raises(UsageError, match=r"'y' has 3 classes: '0', '1', '2'\n.*multiclass"):
        read(lines("x,y", rows), domain="binary")
    rows = [(n, n % 30) for n in range(300)]
    assert len(read(lines("x,y", rows), domain="multiclass").facts.classes) == 30
    rows = [(n, "ab"[n % 2]) for n in range(30)]
    assert read(lines("x,y", rows), domain="multiclass").facts.domain == "multiclass"
    with pytest.raises(UsageError, match="'a', 'b', which are no numbers"):
        read(lines("x,y", rows), domain="regression")


@pytest.mark.parametrize(("count", "domain"), [(2, "binary"), (25, "multiclass")])
def test_classification_counts_the_classes_itself(read, count, domain):
    rows = [(n, n % count) for n in range(200)]
    assert read(lines("x,y", rows), domain="classification").facts.domain == domain


def test_too_many_classes_are_refused(read):
    with pytest.raises(UsageError, match="40 different values in 40 rows"):
        read(lines("x,y", [(n, f"k{n}") for n in range(40)]))


@pytest.mark.parametrize("domain", [None, "regression", "binary", "multiclass"])
@pytest.mark.parametrize("value", ["7", "yes", "1.5"])
def test_a_target_with_one_value_is_refused(read, domain, value):
    if domain == "regression" and value == "yes":
        pytest.skip("refused as no number")
    with pytest.raises(UsageError, match=f"the same value \\('{value}'\\) in all rows"):
        read(lines("x,y", [(n, value) for n in range(40)]), domain=domain)


def test_the_target_is_found_by_name_and_by_place(read):
    rows = [(n % 2, n, n * 0.5) for n in range(30)]
    assert read(lines("a,b,c", rows), target="b").facts.target == "b"
    assert read(lines("a,b,c", rows), target=" B").facts.target == "b"
    nameless = "\n".join(",".join(map(str, row)) for row in rows)
    for wanted in ("c0", "0", "-3"):
        table = read(nameless, target=wanted)
        assert table.facts.target == "c0" and table.facts.num_columns_in_file == 3
        assert [column.name for column in table.facts.columns] == ["c1", "c2"]


def test_a_target_that_is_not_there_is_refused_with_what_is_near(read):
    rows = [(n, n, n * 0.5) for n in range(30)]
    with pytest.raises(
        UsageError, match=r"no column 'prize'.*\n.*did you mean price or size\?.*'rooms'"
    ):
        read(lines("price,rooms,size", rows), target="prize")


def test_rows_without_a_target_are_left_out_and_told(read):
    rows = [(n, "" if n in (3, 7) else "inf" if n == 9 else n + 0.5) for n in range(30)]
    table = read(lines("x,y", rows))
    assert len(table.y) == 27 and table.facts.num_rows == 27 and table.facts.num_rows_in_file == 30
    assert "left out: 3 rows without a value of 'y'" in told(table) and 3 not in table.x[:, 0]


def test_classes_are_of_rows_that_are_used(read):
    rows = [(n, "abc"[n % 2] if n else "rare") for n in range(1000)]
    table = read(lines("x,y", rows), rows=50, seed=1)
    assert table.facts.classes == ("a", "b") and sum(table.facts.class_counts) == 50
    assert "no row that is used is of the class rare" in told(table)


# ---------------------------------------------------------------------------------- the columns


def test_columns_that_tell_nothing_are_left_out_and_told(read):
    rng = np.random.default_rng(0)
    words = "the quick brown fox jumps over a lazy dog".split()
    rows = [
        (
            n, 1000 + 7 * n % 901, f"u{n}x", 5, "same", "", n % 7,
            "same" if n % 2 else "", " ".join(rng.choice(words, 6)), rng.normal(),
        )
        for n in range(100)
    ]  # fmt: skip
    table = read(lines("id,customer_id,code,five,word,no,x,sometimes,text,y", rows))
    assert [column.name for column in table.facts.columns] == ["x", "sometimes"]
    text = told(table)
    for part in (
        "'id', 'customer_id' (it numbers the rows)",
        "'code' (it has another value in nearly every row)",
        "'five', 'word' (it has the same value in all rows)",
        "'no' (no row has a value)",
        "'text' (free text)",
    ):
        assert part in text


def test_a_column_that_counts_up_is_kept_if_its_name_does_not_say_that_it_is_a_number(read):
    table = read(lines("x,y", [(n, n * 2.5) for n in range(100)]))
    assert [column.name for column in table.facts.columns] == ["x"]


def test_a_first_column_without_a_name_that_counts_the_rows_is_left_out(read):
    def body(first):
        return "\n".join(f"{first(n)},{n % 7}.5,{n % 5}.25,{n // 40}" for n in range(120))

    table = read(body(lambda n: n + 1))
    assert "'c0' (it numbers the rows)" in told(table)
    assert [column.name for column in table.facts.columns] == ["c1", "c2"]
    assert read(body(lambda n: 3 * n)).facts.num_columns == 3, "it is unique, and no count"


def test_nothing_left_to_learn_from_is_refused(read):
    with pytest.raises(UsageError, match=r"no column is left to learn from.*'a'"):
        read(lines("a,b,y", [(1, "", n) for n in range(30)]))
    with pytest.raises(UsageError, match="no column is left to learn from"):
        read(lines("y", [(n,) for n in range(30)]))


def test_of_very_many_levels_the_frequent_ones_are_kept_and_it_is_told(read):
    rows = [(f"k{n % 1500}", n % 2) for n in range(3500)]
    table = read(lines("k,y", rows))
    column = table.facts.columns[0]
    assert len(column.levels) == 1000 and column.num_missing > 0
    assert "'k' has 1500 levels: the 1000 most frequent ones" in told(table)


def test_why_says_what_was_seen(read):
    rows = [(n, n / 4, "ab"[n % 2], n * 1.5) for n in range(40)]
    table = read(lines("w,f,k,y", rows))
    assert [column.why for column in table.facts.columns] == [
        "whole numbers, 0 to 39",
        "numbers, 0 to 9.75",
        "2 levels: a, b",
    ]


def test_infinite_values_are_missing_and_told(read):
    rows = [("inf" if n == 3 else "-Infinity" if n == 4 else n, n * 0.5) for n in range(40)]
    table = read(lines("x,y", rows))
    assert table.facts.columns[0].num_missing == 2 and np.isnan(table.x[3, 0])
    assert "2 infinite values of 'x'" in told(table)


def test_clustering_has_no_target(read):
    rows = [(n, n * n, "ab"[n % 2]) for n in range(40)]
    table = read(lines("a,b,k", rows), domain="clustering")
    assert table.y is None and table.facts.domain == "clustering" and not table.facts.target
    assert [column.name for column in table.facts.columns] == ["a", "b", "k"]
    table = read(lines("a,b,k", rows), domain="clustering", target="k")
    assert [column.name for column in table.facts.columns] == ["a", "b"]
    assert "left out: 'k'" in told(table)


# ------------------------------------------------------------------------------ groups and times


def test_groups_and_times_are_no_columns_of_the_model(read):
    rows = [
        (["ann", "bob", ""][n % 3], f"2020-01-{n + 1:02}" if n != 5 else "", n, n * 0.5)
        for n in range(30)
    ]
    table = read(lines("who,when,x,y", rows), groups="who", time="when")
    assert [column.name for column in table.facts.columns] == ["x"]
    assert table.facts.groups == "who" and table.facts.time == "when"
    assert len(table.groups) == len(table.times) == len(table.y) == 29
    assert len(set(table.groups.tolist())) == 3 and table.groups[0] == table.groups[3]
    assert (np.diff(table.times) > 0).all() and table.times[1] - table.times[0] == 86400
    assert "rows without a value of 'who' are taken as one group: 10" in told(table)
    assert "left out: 1 row without a value of 'when'" in told(table)


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        ({"groups": "y"}, "'y' is named as target and groups"),
        ({"groups": "whom"}, "did you mean who"),
        ({"time": "who"}, "'who' tells no time: 'ann', 'bob'"),
    ],
)
def test_columns_of_another_role_that_cannot_be_are_refused(read, request_, match):
    rows = [(["ann", "bob"][n % 2], n, n * 0.5) for n in range(30)]
    with pytest.raises(UsageError, match=match):
        read(lines("who,x,y", rows), target="y", **request_)


# --------------------------------------------------------------------------------- the digest


def test_the_digest_is_of_the_values(read):
    rows = [[n, "ab"[n % 2], n * 0.5] for n in range(40)]
    first = read(lines("x,k,y", rows)).facts.digest
    assert read(lines("x,k,y", rows).replace(",", ";")).facts.digest == first
    for row, column, value in ((3, 0, 77), (3, 1, "a"), (3, 2, 9.25)):
        other = [list(it) for it in rows]
        other[row][column] = value
        assert read(lines("x,k,y", other)).facts.digest != first
    assert read(lines("z,k,y", rows)).facts.digest != first
