"""Readings of irradiance sensors, and their files in the forms of the MIDC.

The Measurement and Instrumentation Data Center publishes one row a second, one column a sensor,
in W/m². Three forms are read; those with a header are written too:

    year   Seconds,Year,DOY,HST,DH3 [W/m^2],…      7,2010,170,1259,912.4,…
    date   DATE (MM/DD/YYYY),HST,DH3 [W/m^2],…     06/19/2010,12:59:07,912.4,…
    bare   no header: the archive of the Oahu grid, of which the columns are known

What is missing is -99999, or an empty cell.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from reparto.errors import UsageError

#: Fields after the time in a file of the Oahu grid's archive, in their order.
OAHU = (
    *"DH3 DH4 DH5 DH10 DH11 DH9 DH2 DH1 Tilt_DH1".split(),
    *"AP6 Tilt_AP6 AP1 AP3 AP5 AP4 AP7 DH6 DH7 DH8".split(),
)
MISSING = -99999.0
LEAST, MOST = -50.0, 2000.0  # W/m²; broken clouds give up to 1600 for a second
DAY_S = 86_400

_CLOCKS = "HST AKST PST MST CST EST AST UTC GMT LST LOCAL TIME".split()
_OTHERS = ("tilt", "direct", "diffuse", "dni", "dhi")  # not the horizontal plane's whole light
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """What sensors measured, second by second.

    Attributes:
        sensors: Their names.
        seconds: When, since 1970 by the station's own clock; increasing, with gaps.
        watts: Global horizontal irradiance in W/m², a row a second and a column a sensor; NaN
            where it is missing.
    """

    sensors: tuple[str, ...]
    seconds: np.ndarray[Any, np.dtype[np.int64]]
    watts: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class _Form:
    """Where a file keeps what: columns of the time, and columns of sensors by name."""

    kind: Literal["year", "date"]
    when: tuple[int, ...]
    sensors: dict[str, int]
    num_columns: int


def read_midc(path: Path | str, sensors: Sequence[str] | None = None) -> Readings:
    """Read a file in one of the MIDC's forms.

    Args:
        path: The file.
        sensors: Names of those that are wanted, in this order; without, all that measure global
            horizontal irradiance.

    Returns:
        Everything in the file, the night and what is missing too.

    Raises:
        UsageError: If the file cannot be read, is of another form, has a row that cannot be
            understood or is out of order, or lacks a sensor; with its line.

    Example:
        >>> readings = read_midc("20100619.csv")  # doctest: +SKIP
        >>> readings.watts.shape  # doctest: +SKIP
        (54001, 17)
    """
    path = Path(path)
    rows, lines = _rows(path)
    form, first = _form(path, rows[0]), 0 if _is_number(rows[0][0]) else 1
    rows, lines = rows[first:], lines[first:]
    if not rows:
        _refuse(path, 1, "a header, and no row after it")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != form.num_columns:
            _refuse(path, line, f"{len(row)} cells, where there should be {form.num_columns}")
    wanted = _wanted(path, form, sensors)
    seconds = _seconds(path, form, rows, lines)
    watts = _watts(path, wanted, rows, lines)
    return Readings(sensors=tuple(wanted), seconds=seconds, watts=watts)


def write_midc(
    readings: Readings, path: Path | str, form: Literal["year", "date"] = "year"
) -> None:
    """Write readings so that `read_midc` and others' programs read them; to 0.01 W/m²."""
    names = [f"{name} [W/m^2]" for name in readings.sensors]
    first = ["Seconds", "Year", "DOY", "HST"] if form == "year" else ["DATE (MM/DD/YYYY)", "HST"]
    watts = np.where(np.isnan(readings.watts), MISSING, readings.watts)
    with open(path, "w", newline="", encoding="ascii") as file:
        file.write(",".join([*first, *names]) + "\n")
        for second, row in zip(readings.seconds.tolist(), watts.tolist(), strict=True):
            cells = [f"{number:.2f}".rstrip("0").rstrip(".") for number in row]
            file.write(",".join([*_told_time(second, form), *cells]) + "\n")


def _told_time(second: int, form: str) -> list[str]:
    day, rest = _EPOCH + timedelta(days=second // DAY_S), second % DAY_S
    hour, minute, left = rest // 3600, rest // 60 % 60, rest % 60
    if form == "date":
        return [f"{day:%m/%d/%Y}", f"{hour:02}:{minute:02}:{left:02}"]
    return [str(left), str(day.year), str(day.timetuple().tm_yday), f"{100 * hour + minute}"]


def _rows(path: Path) -> tuple[list[list[str]], list[int]]:
    """All rows that are not empty, and the lines on which they end."""
    rows, lines = [], []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="give another file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        _refuse(path, (lines[-1] if lines else 0) + 1, f"this is no CSV: {error}")
    if not rows:
        _refuse(path, 1, "the file is empty")
    return rows, lines


def _form(path: Path, row: list[str]) -> _Form:
    """The form, by the file's first row."""
    if _is_number(row[0]):
        if len(row) != 4 + len(OAHU):
            _refuse(
                path, 1,
                f"{len(row)} columns without a header; only files of the Oahu archive, "
                f"of {4 + len(OAHU)}, may have none",
            )  # fmt: skip
        return _Form("year", (0, 1, 2, 3), _irradiance(path, ("",) * 4 + OAHU, 4), len(row))
    cells = [cell.strip() for cell in row]
    low = [cell.lower() for cell in cells]
    clock = next((i for i, cell in enumerate(cells) if _is_clock(cell)), None)
    if clock is None:
        _refuse(path, 1, f"no column of the time, such as HST, among {', '.join(cells[:6])}")
    if low[0].startswith("date"):
        return _Form("date", (0, clock), _irradiance(path, cells, clock + 1), len(row))
    if "seconds" not in low or "year" not in low or "doy" not in low:
        _refuse(path, 1, "neither DATE and a time, nor Seconds, Year, DOY and a time")
    when = (low.index("seconds"), low.index("year"), low.index("doy"), clock)
    return _Form("year", when, _irradiance(path, cells, max(when) + 1), len(row))


def _is_clock(cell: str) -> bool:
    return cell.upper().split(" ")[0] in _CLOCKS


def _irradiance(path: Path, names: Sequence[str], first: int) -> dict[str, int]:
    """Columns of global horizontal irradiance, of which none stands before the `first`."""
    found: dict[str, int] = {}
    for index, cell in enumerate(names[first:], first):
        name, _, unit = (part.strip() for part in cell.partition("["))
        is_light = not unit or unit.rstrip("]").lower() in ("w/m^2", "w/m2", "w/m²")
        if is_light and not any(other in name.lower() for other in _OTHERS):
            if name in found:
                _refuse(path, 1, f"two columns are called {name!r}")
            found[name] = index
    if not found:
        _refuse(path, 1, "no column of global horizontal irradiance in W/m^2")
    return found


def _wanted(path: Path, form: _Form, sensors: Sequence[str] | None) -> dict[str, int]:
    if sensors is None:
        return form.sensors
    for name in sensors:
        if name not in form.sensors:
            _refuse(path, 1, f"there is no sensor {name!r}; there are {', '.join(form.sensors)}")
    return {name: form.sensors[name] for name in sensors}


def _seconds(
    path: Path, form: _Form, rows: list[list[str]], lines: list[int]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    read = _by_year if form.kind == "year" else _by_date
    days: dict[tuple[str, ...], int] = {}  # few, and slow to understand
    seconds = np.empty(len(rows), dtype=np.int64)
    for index, row in enumerate(rows):
        cells = tuple(row[column] for column in form.when)
        try:
            seconds[index] = read(cells, days)
        except ValueError:
            _refuse(path, lines[index], f"{', '.join(cells)!r} is no time")
    late = np.flatnonzero(np.diff(seconds) <= 0)
    if late.size:
        at = int(late[0]) + 1
        _refuse(path, lines[at], "this row is not later than the one before")
    return seconds


def _by_year(cells: tuple[str, ...], days: dict[tuple[str, ...], int]) -> int:
    left, clock = int(cells[0]), int(cells[3])
    if cells[1:3] not in days:
        year, day = int(cells[1]), int(cells[2])
        new_year = date(year, 1, 1)
        if not 1 <= day <= (date(year + 1, 1, 1) - new_year).days:
            raise ValueError(day)
        days[cells[1:3]] = (new_year - _EPOCH).days + day - 1
    return days[cells[1:3]] * DAY_S + _of_day(clock // 100, clock % 100, left)


def _by_date(cells: tuple[str, ...], days: dict[tuple[str, ...], int]) -> int:
    if cells[:1] not in days:
        month, day, year = (int(part) for part in cells[0].split("/"))
        days[cells[:1]] = (date(year, month, day) - _EPOCH).days
    hour, minute, *left = (int(part) for part in cells[1].split(":"))
    if len(left) > 1:
        raise ValueError(cells[1])
    return days[cells[:1]] * DAY_S + _of_day(hour, minute, *left)


def _of_day(hour: int, minute: int, second: int = 0) -> int:
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        raise ValueError(hour, minute, second)
    return 3600 * hour + 60 * minute + second


def _watts(
    path: Path, wanted: dict[str, int], rows: list[list[str]], lines: list[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    columns = list(wanted.values())
    cells = [row[column].strip() or "nan" for row in rows for column in columns]
    try:
        flat = np.array(list(map(float, cells)))
    except ValueError:
        at = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        _refuse_cell(path, wanted, lines, at, f"{cells[at]!r} is no number")
    flat[flat == MISSING] = np.nan
    odd = np.flatnonzero((flat < LEAST) | (flat > MOST))
    if odd.size:
        at = int(odd[0])
        _refuse_cell(path, wanted, lines, at, f"{flat[at]:g} W/m² cannot be")
    watts = flat.reshape(len(rows), len(columns))
    silent = np.flatnonzero(np.isnan(watts).all(axis=0))
    if silent.size:
        names = ", ".join(list(wanted)[i] for i in silent)
        _refuse(path, lines[0], f"no reading of {names} from here on; name those that you want")
    return watts


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refuse_cell(
    path: Path, wanted: dict[str, int], lines: list[int], at: int, what: str
) -> NoReturn:
    row, column = divmod(at, len(wanted))
    _refuse(path, lines[row], f"sensor {list(wanted)[column]}: {what}")


def _refuse(path: Path, line: int, what: str) -> NoReturn:
    raise UsageError(
        f"{path}:{line}: {what}",
        remedy="mend or take out that line; a missing reading is written as -99999",
    )
