"""The progress line never garbles what the script writes."""

import io

from reparto.cli._progress import Progress
from reparto.cli._style import columns, duration
from reparto.spec import StepRecord


class Stream(io.TextIOWrapper):
    def __init__(self, screen, tty):
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._screen, self._tty = screen, tty

    @property
    def buffer(self):
        return self._screen

    def write(self, text):
        self._screen.write(text.encode())
        return len(text)

    def isatty(self):
        return self._tty


def progress(tty):
    screen = io.BytesIO()
    line = Progress(Stream(screen, tty), Stream(screen, tty))
    line.begin()
    return line, screen


def record(step):
    return StepRecord(step=step, time_s=step * 0.5, samples=8, loss=0.25)


def test_live_line_is_cleared_before_the_script_writes():
    line, screen = progress(tty=True)
    line.step(record(1), 2)
    line.output("stdout", b"hello\n")
    text = screen.getvalue().decode()
    assert "step 1 · loss 0.25 · 2 workers" in text
    assert "\r\033[Khello\n" in text


def test_line_that_the_script_has_begun_is_left_alone():
    line, screen = progress(tty=True)
    line.output("stderr", b" 50%|#####     |")
    line.step(record(1), 2)
    assert screen.getvalue() == b" 50%|#####     |"


def test_nothing_but_the_output_goes_to_a_file_at_first():
    line, screen = progress(tty=False)
    line.step(record(1), 2)
    line.output("stdout", b"hello\n")
    assert screen.getvalue() == b"hello\n"


def test_rate_counts_from_the_first_step(monkeypatch):
    line, screen = progress(tty=True)
    line.step(record(1), 1)
    monkeypatch.setattr("reparto.cli._progress.REDRAW_EVERY_S", 0.0)
    line._next_s = 0.0
    line.step(record(3), 1)
    assert "step 3 · 16 samples/s" in screen.getvalue().decode()


def test_columns_line_up_and_durations_read_well():
    assert columns([("a", "bb", "c"), ("aaa", "b", "cc")]) == ["  a    bb  c", "  aaa  b   cc"]
    assert [duration(s) for s in (0.44, 12.3, 185, 3765)] == ["0.4 s", "12 s", "3:05", "1:02:45"]
