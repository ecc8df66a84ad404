"""CSV: however it is written, the same values come of it, and what was inferred is told."""

import bz2
import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reparto.errors import UsageError
from reparto.search._tables import read_table
from reparto.spec import SearchRequest

RNG = np.random.default_rng(0)
NUM = 60
NUMBERS = RNG.normal(size=NUM).round(3).tolist()
COLOURS = RNG.choice(["red", "green", "blue, dark"], NUM).tolist()
TARGET = (RNG.normal(size=NUM) * 100).round(2).tolist()


def written(delimiter=",", decimal=".", header=True, end="\n", quoting=csv.QUOTE_MINIMAL):
    def one(value):
        return str(value).replace(".", decimal) if isinstance(value, float) else value

    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    if header:
        writer.writerow(["size", "colour", "price"])
    for row in zip(NUMBERS, COLOURS, TARGET, strict=True):
        writer.writerow(map(one, row))
    return out.getvalue()


def check(table):
    np.testing.assert_allclose(table.x[:, 0], NUMBERS)
    np.testing.assert_allclose(table.y, TARGET)
    column = table.facts.columns[1]
    assert column.kind == "category" and column.levels == ("blue, dark", "green", "red")
    assert [column.levels[int(it)] for it in table.x[:, 1]] == COLOURS
    assert table.facts.domain == "regression" and table.facts.num_rows == NUM


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("header", [True, False])
def test_delimiter_decimal_sign_and_header_are_inferred(read, delimiter, decimal, header):
    if delimiter == "," and decimal == ",":
        pytest.skip("written with quotes, see below")
    table = read(written(delimiter, decimal, header))
    check(table)
    names = ["size", "colour"] if header else ["c0", "c1"]
    assert [column.name for column in table.facts.columns] == names
    assert ("fractions with a comma" in table.facts.notes[0]) == (decimal == ",")
    assert ("no line of names" in table.facts.notes[0]) == (not header)
    assert any("no target was named" in note for note in table.facts.notes)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_quotes_and_line_ends_make_no_difference(read, end, quoting):
    check(read(written(end=end, quoting=quoting)))


def test_fractions_with_a_comma_between_commas_are_in_quotes(read):
    table = read(written(",", ","))
    np.testing.assert_allclose(table.x[:, 0], NUMBERS)
    np.testing.assert_allclose(table.y, TARGET)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_letters_of_any_encoding_are_read(read, encoding):
    names = "größe,farbe,preis"
    body = "".join(f"{n},{'grün' if n % 3 else 'weiß'},{n * n}.5\n" for n in range(40))
    table = read(f"{names}\n{body}", encoding=encoding, target="preis")
    assert [column.name for column in table.facts.columns] == ["größe", "farbe"]
    assert table.facts.columns[1].levels == ("grün", "weiß")
    told = {"utf-8": "columns", "latin-1": "cp1252"}.get(encoding, encoding)
    assert told in table.facts.notes[0]


def test_letters_that_are_no_utf_8_far_down_are_read_and_told(read):
    body = "".join(f"{n % 7},{'a' if n % 3 else 'b'},{n}.5\n" for n in range(150_000))
    content = f"x,k,y\n{body}".encode() + "3,ü,1.5\n".encode("latin-1")
    table = read(content)
    assert table.facts.columns[1].levels == ("a", "b", "ü") and "latin-1" in table.facts.notes[0]


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "d.csv.gz"), (bz2.compress, "d")])
def test_packed_files_are_unpacked_while_they_are_read(read, pack, name):
    table = read(pack(written().encode()), name)
    check(table)
    assert "packed with" in table.facts.notes[0]


def test_a_packed_file_that_is_torn_off_is_refused(read):
    with pytest.raises(UsageError, match="cannot be read to its end"):
        read(gzip.compress((written() * 30).encode())[:-300], "d.csv.gz")


@pytest.mark.parametrize("marker", ["", "NA", "?", "null", "nan", " ?", "NaN", "#N/A", "\\N"])
def test_what_stands_for_no_value_is_missing_in_numbers_and_categories(read, marker):
    rows = [f"{n},{'ab'[n % 2]},{n}.5" for n in range(30)]
    rows[3], rows[4] = f"{marker},b,3.5", f"4,{marker},4.5"
    table = read("x,k,y\n" + "\n".join(rows))
    assert [column.num_missing for column in table.facts.columns] == [1, 1]
    assert np.isnan(table.x[3, 0]) and np.isnan(table.x[4, 1])
    assert table.facts.columns[0].kind == "number"


def test_numbers_with_another_word_for_missing_stay_numbers_and_it_is_told(read):
    rows = [f"{n},{n % 5},{n}.5" for n in range(50)]
    rows[7], rows[9] = "unknown,3,7.5", "-,3,9.5"
    table = read("x,z,y\n" + "\n".join(rows))
    column = table.facts.columns[0]
    assert column.kind == "number" and column.num_missing == 2
    assert "2 that are none count as missing ('unknown', '-')" in column.why


def test_numbers_and_words_mixed_are_a_category_and_it_is_told(read):
    rows = [f"{n % 4 if n % 2 else 'ab'[n % 4 // 2]},{n}.5" for n in range(40)]
    column = read("x,y\n" + "\n".join(rows)).facts.columns[0]
    assert column.kind == "category" and column.levels == ("1", "3", "a", "b")
    assert "mixed" in column.why


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (['"1,234"', '"999"', '"12,345.5"'], [1234, 999, 12345.5]),
        (["$5.50", '"$1,200"', "$7"], [5.5, 1200, 7]),
        (["12%", "3.5%", "100%"], [12, 3.5, 100]),
        (["1 234", "12 345", "7"], [1234, 12345, 7]),
        (["1e3", "-2.5E-2", "+4"], [1000, -0.025, 4]),
        (["12 kg", "3.5kg", "1000 kg"], [12, 3.5, 1000]),
        (["12:30", "00:00:05", "1:00"], [45000, 5, 3600]),
        ([" 1", "2 ", " 3.5 "], [1, 2, 3.5]),
    ],
)
def test_numbers_are_read_however_they_are_written(read, texts, values):
    rows = [f"{texts[n % 3]},{n}.5" for n in range(30)]
    table = read("x,y\n" + "\n".join(rows))
    assert table.facts.columns[0].kind == "number"
    np.testing.assert_allclose(table.x[:3, 0], values)


@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_thousands_with_a_comma_are_no_fractions_beside_smaller_numbers(read, delimiter):
    texts = ("1,234", "999", "56,789", "12")
    table = read(
        f"x{delimiter}y\n"
        + "".join(f"{texts[n % 4]}{delimiter}{'ab'[n % 2]}\n" for n in range(40))
    )
    assert table.x[:4, 0].tolist() == [1234, 999, 56789, 12]


def test_thousands_with_a_comma_are_no_fractions_beside_those_with_a_point(read):
    rows = [f"{n + 1},{n:03d}\t{n}.5\t{'ab'[n % 2]}" for n in range(40)]
    table = read("x\tz\ty\n" + "\n".join(rows))
    assert table.x[7, 0] == 8007 and table.x[7, 1] == 7.5


def test_fractions_with_three_digits_stay_fractions(read):
    rows = [f"{n % 9 + 1},{n:03d};{'ab'[n % 2]}" for n in range(40)]
    assert read("x;y\n" + "\n".join(rows)).x[7, 0] == 8.007


def test_a_number_without_the_thousands_of_others_is_not_read_as_if_it_had_them(read):
    texts = ["950", *(f"{n}.{n % 10}k" for n in range(1, 30))]
    column = read(
        "x,y\n" + "".join(f"{it},{n}.5\n" for n, it in enumerate(texts * 2))
    ).facts.columns[0]
    assert column.kind == "category"
    all_thousands = "".join(f"{it},{n}.5\n" for n, it in enumerate(texts[1:] * 2))
    assert read("x,y\n" + all_thousands).x[0, 0] == 1.1


def test_thousands_with_points_beside_fractions_with_a_comma(read):
    rows = [f"{text};{n},5" for n in range(20) for text in ("1.234,5", "999,25", "1.000.000")]
    table = read("x;y\n" + "\n".join(rows))
    np.testing.assert_allclose(table.x[:3, 0], [1234.5, 999.25, 1e6])
    assert table.y[3] == 1.5 and "written as 1.234,5" in table.facts.columns[0].why


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["2020-01-02", "2021-12-31"], [1577923200, 1640908800]),
        (["2020-01-02 03:04:05", "2021-12-31 00:00:00"], [1577934245, 1640908800]),
        (["2020-01-02 03:04:05 UTC", "2021-12-31 00:00:00 UTC"], [1577934245, 1640908800]),
        (["2020-01-02T03:04:05Z", "2021-12-31T01:00:00+01:00"], [1577934245, 1640908800]),
        (["31/12/2021", "02/01/2020"], [1640908800, 1577923200]),
        (["12/31/2021", "01/02/2020"], [1640908800, 1577923200]),
        (["31.12.2021", "2.1.2020"], [1640908800, 1577923200]),
        (["31-Dec-2021", "02-Jan-2020"], [1640908800, 1577923200]),
        (["12/31/2021 1:00 AM", "01/02/2020 3:04 PM"], [1640912400, 1577977440]),
    ],
)
def test_dates_are_seconds_since_1970_however_they_are_written(read, texts, seconds):
    rows = [f"{texts[n % 2]},{n}.5" for n in range(30)]
    table = read("when,y\n" + "\n".join(rows))
    assert table.facts.columns[0].kind == "date"
    np.testing.assert_array_equal(table.x[:2, 0], seconds)


def test_a_date_whose_day_cannot_be_told_from_its_month_is_told(read):
    rows = [f"0{n % 9 + 1}/0{n % 5 + 1}/2021,{n}.5" for n in range(30)]
    assert "cannot be told" in read("when,y\n" + "\n".join(rows)).facts.columns[0].why


def test_columns_may_be_parted_by_any_blanks(read):
    rows = [f"  {n}.5   {n * 2}\t {'car' if n % 2 else 'bus'}  {n}.25  " for n in range(30)]
    table = read("\n".join(rows), "old.data")
    np.testing.assert_array_equal(table.x[:, 1], np.arange(30) * 2)
    np.testing.assert_array_equal(table.y, np.arange(30) + 0.25)


def table_lines(delimiter=","):
    return "".join(f"{n}{delimiter}{n % 3}{delimiter}{n % 2}\n" for n in range(60))


@pytest.mark.parametrize(
    ("above", "delimiter"),
    [
        ("# made by me\n\n# on monday\na,b,y\n", ","),
        ("# a,b,y\n", ","),
        ("#a b y\n", " "),
        ("sep=;\na;b;y\n", ";"),
        ("\n \na;b;y\n", ";"),
    ],
)
def test_what_stands_above_the_names_is_no_row(read, above, delimiter):
    table = read(above + table_lines(delimiter))
    assert [column.name for column in table.facts.columns] == ["a", "b"]
    assert table.facts.num_rows == 60 and table.facts.target == "y"


def test_a_wrong_line_below_comments_is_told_by_its_number(read):
    content = "# one\n# two\na,b,y\n" + table_lines() + "1,2\n" + table_lines()
    with pytest.raises(UsageError, match="line 64: 2 values where 3 are expected"):
        read(content)


def test_names_may_be_numbers_of_columns_or_years(read):
    counted = "0,1,2,3\n" + "".join(f"{n}.5,{n * n},{n % 3},{n % 2}\n" for n in range(40))
    assert [column.name for column in read(counted).facts.columns] == ["0", "1", "2"]
    years = "land,2019,2020\n" + "".join(f"l{n % 4},{n}.5,{n * n}.25\n" for n in range(40))
    assert [column.name for column in read(years).facts.columns] == ["land", "2019"]


def test_values_may_be_between_single_quotes(read):
    table = read("a,b,y\n" + "".join(f"'x{n % 3}, z','w{n % 2}',{n % 2}\n" for n in range(30)))
    assert table.facts.columns[0].levels == ("x0, z", "x1, z", "x2, z")


@pytest.mark.parametrize(
    ("content", "what"),
    [('{"a": 1}\n{"a": 2}\n', "JSON"), ("<html><body>404</body></html>", "HTML")],
)
def test_text_that_is_no_table_is_refused(read, content, what):
    with pytest.raises(UsageError, match=f"holds .*{what}"):
        read(content)


def test_values_may_hold_line_ends_and_quotes(read):
    rows = [f'{n},"a ""quoted""\nline {n % 2}",{n}.5' for n in range(40)]
    table = read('"the\nsize",k,y\n' + "\n".join(rows))
    assert table.facts.num_rows == 40 and table.facts.columns[0].name == "the\nsize"
    assert table.facts.columns[1].levels == ('a "quoted"\nline 0', 'a "quoted"\nline 1')


def test_line_ends_in_values_far_down_are_read_too(read):
    rows = [f'{n},"{"k" * (n % 3)}z",{n % 10}.5' for n in range(200_000)]
    rows[199_990] = '3,"k\nz",5.5'
    table = read("x,k,y\n" + "\n".join(rows))
    assert table.facts.num_rows == 200_000 and "k\nz" in table.facts.columns[1].levels


def test_a_column_that_turns_out_to_hold_words_far_down_is_a_category(read):
    rows = [f"{n % 5},{n % 10}.5" for n in range(150_000)] + ["five,1.5"] * 8000
    table = read("x,y\n" + "\n".join(rows))
    assert table.facts.columns[0].levels == ("0", "1", "2", "3", "4", "five")
    assert table.facts.num_rows == 158_000


def test_names_that_occur_twice_are_told_apart(read):
    table = read("a,a,b,a\n" + "\n".join(f"{n},{n * 2},{n % 3},{n}.5" for n in range(20)))
    assert [column.name for column in table.facts.columns] == ["a", "a.1", "b"]
    assert table.facts.target == "a.2" and "given a number" in str(table.facts.notes)


def test_names_of_rows_as_pandas_and_r_write_them_are_left_out(read):
    body = "\n".join(f"{n},{n % 7},{n}.5" for n in range(30))
    for header in (",a,y", "a,y"):
        table = read(f"{header}\n{body}")
        assert [column.name for column in table.facts.columns] == ["a"]
        assert "it numbers the rows" in str(table.facts.notes)


def test_a_comma_at_the_end_of_each_line_is_no_column(read):
    table = read("a,b,y,\n" + "".join(f"{n},{n % 3},{n}.5,\n" for n in range(30)))
    assert table.facts.target == "y" and table.facts.num_columns == 2


@pytest.mark.parametrize("first", ["{n}", "{n % 3}"])
def test_names_stand_above_their_columns_though_only_rows_end_with_a_comma(read, first):
    rows = [f"{n if first == '{n}' else n % 3}.5,{n % 4},{n}.25," for n in range(30)]
    table = read("a,b,target\n" + "\n".join(rows), target="target")
    assert [column.name for column in table.facts.columns] == ["a", "b"]
    assert table.y[3] == 3.25 and table.x[3, 1] == 3


def test_blank_lines_before_and_after_are_no_rows(read):
    table = read("\n\nx,y\n" + "".join(f"{n},{n}.5\n\n" for n in range(20)) + "\n\n")
    assert table.facts.num_rows == 20 and table.facts.columns[0].name == "x"


@pytest.mark.parametrize("far", [0, 120_000])
def test_a_row_with_other_many_values_is_refused_with_its_line(read, far):
    rows = [f"{n},{n % 9},{n}.5" for n in range(far + 30)]
    rows[far + 10] = "1,2,3,4"
    with pytest.raises(UsageError, match=rf"line {far + 12}: 4 values where 3 are expected: 1,2"):
        read("x,z,y\n" + "\n".join(rows))


def test_a_quote_that_is_never_closed_is_refused(read):
    rows = [f"{n},a,{n}.5" for n in range(50)]
    rows[20] = '20,"a,20.5'
    with pytest.raises(UsageError, match=r"data.csv"):
        read("x,k,y\n" + "\n".join(rows))


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30),
        min_size=6,
        max_size=30,
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_any_number_is_read_as_it_was_written(tmp_path_factory, values, delimiter):
    path = tmp_path_factory.mktemp("any") / "n.csv"
    lines = [f"{value!r}{delimiter}{n % 2}" for n, value in enumerate([*values, 0.5, -1e9])]
    path.write_text(f"x{delimiter}y\n" + "\n".join(lines))
    table = read_table(SearchRequest(data=str(path)))
    np.testing.assert_array_equal(table.x[:, 0], [float(it) for it in [*values, 0.5, -1e9]])


WORD = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(
    words=st.lists(WORD, min_size=2, max_size=5, unique=True), delimiter=st.sampled_from(",;\t")
)
def test_any_word_is_read_as_it_was_written(tmp_path_factory, words, delimiter):
    kept = ["w" + " ".join(word.split()) for word in words]
    path = tmp_path_factory.mktemp("any") / "w.csv"
    rows = [kept[n % len(kept)] for n in range(40)]
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, delimiter=delimiter)
        writer.writerow(["word", "y"])
        writer.writerows((word, n + 0.5) for n, word in enumerate(rows))
    table = read_table(SearchRequest(data=str(path)))
    if len(set(kept)) == 1:
        return
    levels = table.facts.columns[0].levels
    assert [levels[int(it)] for it in table.x[:, 0]] == [word.strip() for word in rows]
