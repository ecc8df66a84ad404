"""Readings of irradiance: files of the MIDC's forms, generated clouds, and the task of them."""

import numpy as np
import pytest
import torch

from reparto.bench import _irradiance as irradiance
from reparto.bench._clouds import Sky, clear_sky, sensor_places
from reparto.bench._midc import OAHU, Readings, read_midc, write_midc
from reparto.errors import UsageError

HEADER = "Seconds,Year,DOY,HST,DH3 [W/m^2],DH4 [W/m^2],AP1 [W/m^2]"
DATED = "DATE (MM/DD/YYYY),HST,DH3 [W/m^2],DH4 [W/m^2],AP1 [W/m^2]"


@pytest.fixture
def file(tmp_path):
    """Write lines into a file and return it."""

    def write(*lines):
        path = tmp_path / "grid.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def rows(num_rows, year="2010,170,1259"):
    return [f"{second},{year},{500 + second},{600 + second},700.5" for second in range(num_rows)]


# ------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("form", ["year", "date"])
def test_what_is_generated_is_read_back_from_a_file(tmp_path, form):
    made = irradiance.generate(90, seed=3)
    made.watts[7, 4] = np.nan
    write_midc(made, tmp_path / "grid.csv", form)
    read = read_midc(tmp_path / "grid.csv")
    assert read.sensors == made.sensors
    assert np.array_equal(read.seconds, made.seconds)
    assert np.array_equal(read.watts, made.watts, equal_nan=True)


def test_a_file_without_a_header_is_read_as_the_oahu_archive(file):
    cells = [str(number) for number in range(100, 100 + len(OAHU))]
    path = file(*(f"{second},2010,170,905,{','.join(cells)}" for second in range(3)))
    read = read_midc(path)
    assert len(read.sensors) == 17 and not any("Tilt" in name for name in read.sensors)
    assert read.watts[0, read.sensors.index("DH3")] == 100
    assert read.watts[0, read.sensors.index("AP6")] == 109  # after Tilt_DH1
    assert read.seconds[0] % 86_400 == 9 * 3600 + 5 * 60


def test_only_horizontal_irradiance_is_read_and_in_the_order_that_is_asked_for(file):
    path = file(
        "Seconds,Year,DOY,HST,DH1 [W/m^2],Tilt DH1 [W/m^2],Air Temperature [deg C],DH2 [W/m^2]",
        "0,2010,170,1200,1,2,3,4",
    )
    assert read_midc(path).sensors == ("DH1", "DH2")
    assert read_midc(path, ["DH2", "DH1"]).watts.tolist() == [[4, 1]]


def test_missing_readings_become_nan(file):
    lines = ["0,2010,170,1200,-99999,5,6", "1,2010,170,1200,4,,6", "2,2010,170,1200,4,5,-2"]
    watts = read_midc(file(HEADER, *lines)).watts
    assert np.isnan(watts).tolist() == [[True, False, False], [False, True, False], [False] * 3]
    assert watts[2, 2] == -2  # at night, sensors tell a little less than nothing


def test_midnight_the_new_year_and_leap_days_are_understood(file):
    lines = ["59,2011,365,2359,1,2,3", "0,2012,1,0,1,2,3", "1,2012,366,5,1,2,3"]
    seconds = read_midc(file(HEADER, *lines)).seconds
    assert seconds[1] - seconds[0] == 1
    assert seconds[2] - seconds[1] == 365 * 86_400 + 301
    dated = read_midc(file(DATED, "12/31/2012,00:05:01,1,2,3")).seconds
    assert dated[0] == seconds[2]


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        ([HEADER, *rows(2), "2,2010,170,1259,1,2"], 4, "6 cells, where there should be 7"),
        ([HEADER, *rows(2), "2,2010,170,1259,1,cloud,3"], 4, "sensor DH4: 'cloud' is no number"),
        ([HEADER, *rows(2), "2,2010,170,1259,1,2,40000"], 4, "sensor AP1: 40000 W/m² cannot be"),
        ([HEADER, "0,2010,170,1259,1,inf,3"], 2, "sensor DH4: inf W/m² cannot be"),
        ([HEADER, *rows(2), "1,2010,170,1259,1,2,3"], 4, "not later than the one before"),
        ([HEADER, *rows(2), "61,2010,170,1259,1,2,3"], 4, "is no time"),
        ([HEADER, "0,2010,366,1259,1,2,3"], 2, "is no time"),
        ([HEADER, "0,2010,170,1260,1,2,3"], 2, "is no time"),
        ([DATED, "13/01/2010,12:59:01,1,2,3"], 2, "is no time"),
        ([DATED, "12/01/2010,12:59:01:07,1,2,3"], 2, "is no time"),
        ([HEADER, "0,2010,170,1259,1,-99999,3"], 2, "no reading of DH4"),
        ([HEADER], 1, "no row after it"),
        (rows(2), 1, "7 columns without a header"),
        (["a,b,c", "1,2,3"], 1, "no column of the time"),
        (["Year,DOY,HST,DH3 [W/m^2]", "2010,170,1259,1"], 1, "neither DATE and a time"),
        (["Seconds,Year,DOY,HST,Wind [m/s]", "0,2010,1,1200,3"], 1, "no column of global"),
        ([HEADER + ",AP1 [W/m^2]", rows(1)[0] + ",3"], 1, "two columns are called 'AP1'"),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_the_reason(file, lines, line, what):
    path = file(*lines)
    with pytest.raises(UsageError) as caught:
        read_midc(path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert what in caught.value.message


def test_blank_lines_are_skipped_and_still_counted(file):
    path = file(HEADER, "", rows(1)[0], "", "1,2010,170,1259,1,2")
    with pytest.raises(UsageError, match=r"grid\.csv:5: 6 cells"):
        read_midc(path)


def test_a_file_that_is_empty_absent_or_no_text_is_refused(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\xfe")
    for name, what in [("empty", "empty"), ("absent", "No such file"), ("picture", "no CSV")]:
        with pytest.raises(UsageError, match=what):
            read_midc(tmp_path / f"{name}.csv")


def test_an_unknown_sensor_is_refused_with_the_known_ones(file):
    with pytest.raises(UsageError, match="no sensor 'DH99'; there are DH3, DH4, AP1"):
        read_midc(file(HEADER, *rows(1)), ["DH99"])


# ----------------------------------------------------------------------------------- pairs


def readings(num_rows=30):
    watts = np.arange(num_rows * 3, dtype=float).reshape(num_rows, 3) + 100
    return Readings(sensors=("a", "b", "c"), seconds=np.arange(num_rows) + 1000, watts=watts)


def test_a_pair_is_all_sensors_now_and_the_middle_one_ten_seconds_later():
    x, y = irradiance.pairs(readings())
    assert x.shape == (20, 3) and y.shape == (20, 1)
    watts = readings().watts
    assert np.allclose(x * 300 + 500, watts[:20], atol=1e-3)
    assert np.allclose(y[:, 0] * 300 + 500, watts[10:, 1], atol=1e-3)


def test_the_target_and_the_horizon_can_be_chosen():
    x, y = irradiance.pairs(readings(), target="c", horizon_s=3)
    assert np.allclose(y[:, 0] * 300 + 500, readings().watts[3:, 2], atol=1e-3)
    assert len(x) == 27


def test_no_pair_spans_a_gap_or_uses_what_is_missing_or_the_night():
    some = readings(40)
    some.seconds[15:] += 100  # rows 5 to 14 have none ten seconds later
    some.watts[2, 0] = np.nan  # row 2 is not whole
    some.watts[13, 1] = np.nan  # row 3's answer is missing
    some.watts[4] = 1.0  # it is night
    x, _ = irradiance.pairs(some)
    used = {(round(first * 300) + 400) // 3 for first in x[:, 0].tolist()}
    assert used == {0, 1, *range(15, 30)}


def test_readings_of_which_nothing_can_be_used_are_refused_with_counts():
    some = readings()
    some.watts[:] = 2.0
    with pytest.raises(
        UsageError, match="of 30 rows none can be used: 30 have all sensors, 0 are"
    ):
        irradiance.pairs(some)
    with pytest.raises(UsageError, match="no sensor 'z'"):
        irradiance.pairs(readings(), target="z")


# ---------------------------------------------------------------------------------- clouds


def test_the_same_seed_gives_the_same_data_and_another_seed_others():
    x, y = irradiance.supervised(200, seed=1)
    again, _ = irradiance.supervised(200, seed=1)
    other, _ = irradiance.supervised(200, seed=2)
    assert x.shape == (200, 50) and y.shape == (200, 1) and x.dtype == y.dtype == np.float32
    assert np.array_equal(x, again) and not np.array_equal(x, other)


def test_the_number_of_samples_is_kept_also_over_several_days():
    x, y = irradiance.supervised(80_000)
    assert len(x) == len(y) == 80_000
    assert np.isfinite(x).all() and np.abs(x).max() < 5
    with pytest.raises(UsageError):
        irradiance.supervised(0)


def test_maps_show_the_clouds_that_the_middle_sees_ten_seconds_later():
    x, y = irradiance.maps(60, seed=4)
    assert x.shape == (60, 1, 50, 50) and y.shape == (60, 1)
    assert np.array_equal(x[10:, 0, 25, 25], y[:-10, 0])


def test_maps_and_sensors_see_the_same_clouds():
    x, _ = irradiance.supervised(300, seed=5)
    seen, _ = irradiance.maps(300, seed=5)
    column, row = np.floor(sensor_places(50, 5)[25] / 20).astype(int)
    assert np.corrcoef(x[:, 25], seen[:, 0, row, column])[0, 1] > 0.99


def test_clouds_come_with_the_wind():
    """What a place sees, a place 10 s downwind sees 10 s later; one upwind does not."""
    sky = Sky(np.random.default_rng(0))
    seconds = np.arange(3000.0)
    wind = sky._drift(np.array([0.0, 3000.0]))[1] / 300  # metres in ten seconds
    here, down, up = (500 + factor * wind for factor in (0, 1, -1))
    clear = sky.clearness(seconds, np.stack([here, down, up]))
    later = np.corrcoef(clear[10:, 1], clear[:-10, 0])[0, 1]
    earlier = np.corrcoef(clear[10:, 2], clear[:-10, 0])[0, 1]
    assert later > 0.95 > 0.8 > earlier


def test_sensors_further_apart_are_less_alike():
    x, _ = irradiance.supervised(8000)
    places = sensor_places(50, 0)
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    alike = np.corrcoef(x.T)
    near = alike[(apart > 0) & (apart < 200)].mean()
    far = alike[apart > 700].mean()
    assert near > 0.75 > far


def test_a_clear_sky_is_dark_at_night_and_brightest_at_noon():
    day = 14_760 * 86_400.0
    watts = clear_sky(day + 3600.0 * np.array([0, 5, 9, 12, 15, 22]))
    assert watts[0] == watts[1] == watts[5] == 0 and watts.argmax() == 3
    assert 950 < watts[3] < 1100 and watts[2] == pytest.approx(watts[4])


def test_persistence_is_the_error_of_answering_with_the_present():
    x, y = irradiance.pairs(readings())
    assert irradiance.persistence(x, y) == pytest.approx(30 / 300, rel=1e-5)
    assert irradiance.skill(0.025, x, y) == pytest.approx(0.75, rel=1e-5)
    assert irradiance.persistence(x, y, target=2) == pytest.approx(29 / 300, rel=1e-5)
    assert irradiance.watts_of(0.1) == pytest.approx(30)


def test_a_small_perceptron_beats_persistence():
    x, y = map(torch.tensor, irradiance.supervised(5000))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(50, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(10):
        for rows in torch.randperm(4000).split(100):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        error = torch.nn.functional.mse_loss(model(x[4000:]), y[4000:]).item() ** 0.5
    assert irradiance.skill(error, x[4000:].numpy(), y[4000:].numpy()) > 0.2
