"""What is kept of a run's usage, and how it is shown."""

import io

import pytest

from reparto import api
from reparto.spec import Begin, Note, Recording, Usage, UsageSample, from_json
from reparto.sweep import Recorder, _recorder, usage_page, usage_png, usage_svg, usage_table
from reparto.sweep._usage_report import write_usage


def sample(time_s, *, interval_s=0.5, cpu_cores=1.0, memory_bytes=4_000_000, **more):
    fields = {"cpu_limit_cores": 2, "memory_limit_bytes": 9_000_000, "sent_bytes": 0}
    fields |= {"received_bytes": 0, "loopback_bytes": 0, **more}
    return UsageSample(
        time_s=time_s,
        interval_s=interval_s,
        cpu_cores=cpu_cores,
        memory_bytes=memory_bytes,
        **fields,
    )


def recorded(*events):
    recorder = Recorder()
    for event in events:
        recorder.event(event)
    return recorder.recording()


def two_hosts(**more):
    """Two hosts that send each other twice as much in the second interval as in the first."""
    return Recording(
        began_s=1000.0,
        hosts={
            host: (
                sample(0.5, sent_bytes=1000, received_bytes=900, cpu_cores=0.5, **more),
                sample(1.0, sent_bytes=3000, received_bytes=2700, memory_bytes=5_000_000, **more),
            )
            for host in ("left", "<right>")
        },
    )


def test_times_count_from_the_begin_of_the_script_and_hosts_stand_in_the_order_of_ranks():
    found = recorded(
        Usage(rank=2, host="b", sample=sample(100.9)),
        Begin(rank=2, time_s=100.2),
        Begin(rank=0, time_s=100.0),
        Usage(rank=0, host="a", sample=sample(100.5)),
        Usage(rank=0, host="a", sample=sample(101.0)),
    )
    assert found.began_s == 100.0
    times = {host: [one.time_s for one in samples] for host, samples in found.hosts.items()}
    assert list(times) == ["a", "b"]
    assert times["a"] == pytest.approx([0.5, 1.0]) and times["b"] == pytest.approx([0.9])


def test_all_is_passed_on():
    seen = []

    class Watcher(api.Watcher):
        def event(self, event):
            seen.append(event)

        def has_enough(self):
            return True

    recorder = Recorder(Watcher())
    events = [Note(rank=0, text="x"), Usage(rank=0, host="a", sample=sample(1.0))]
    for event in events:
        recorder.event(event)
    assert seen == events
    assert recorder.has_enough()


def test_end_of_a_run_is_no_interval_of_its_own():
    found = recorded(
        Begin(rank=0, time_s=0.0),
        Usage(rank=0, host="a", sample=sample(0.5, cpu_cores=1.0)),
        Usage(rank=0, host="a", sample=sample(0.6, interval_s=0.1, cpu_cores=7.0, sent_bytes=9)),
    )
    (only,) = found.hosts["a"]
    assert (only.time_s, only.interval_s, only.sent_bytes) == (0.6, 0.6, 9)
    assert only.cpu_cores == pytest.approx(2.0)


def test_long_run_is_kept_coarser_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(_recorder, "MAX_SAMPLES", 8)
    num, step_s = 101, 0.5
    events = [
        Usage(
            rank=0,
            host="a",
            sample=sample(step_s * n, cpu_cores=n % 5, memory_bytes=n, sent_bytes=10 * n),
        )
        for n in range(1, num + 1)
    ]
    found = recorded(Begin(rank=0, time_s=0.0), *events).hosts["a"]
    assert 4 <= len(found) <= 8
    assert sum(one.interval_s for one in found) == pytest.approx(num * step_s)
    assert len({one.interval_s for one in found[:-1]}) == 1
    spent_s = sum(one.cpu_cores * one.interval_s for one in found)
    assert spent_s == pytest.approx(sum(event.sample.cpu_cores for event in events) * step_s)
    assert (found[-1].sent_bytes, found[-1].memory_bytes) == (10 * num, num)


def test_nothing_told_is_an_empty_recording():
    assert recorded(Begin(rank=0, time_s=5.0)).hosts == {}


def test_summary_weighs_by_time():
    samples = sample(1, interval_s=1.0, cpu_cores=1), sample(4, interval_s=3.0, cpu_cores=2)
    found = Recording(began_s=0.0, hosts={"a": samples})
    (told,) = found.summary()
    assert (told.mean_cpu_cores, told.peak_cpu_cores) == (1.75, 2)


@pytest.mark.parametrize(
    ("hosts", "outside", "inside", "expected"),
    [(1, 0, 0, False), (1, 400, 900, True), (1, 900, 400, False), (2, 400, 900, False),
     (2, 1, 900, True)],
)  # fmt: skip
def test_loopback_is_the_network_of_one_machine_only(hosts, outside, inside, expected):
    one = sample(1.0, sent_bytes=outside, loopback_bytes=inside)
    found = Recording(began_s=0.0, hosts={f"h{n}": (one,) for n in range(hosts)})
    assert found.over_loopback is expected
    assert ("sent over lo" in usage_table(found)) is expected
    (told, *_) = found.summary()
    assert told.sent_bytes == (inside if expected else outside)


def test_table_has_one_line_a_host():
    header, left, _ = usage_table(two_hosts()).splitlines()
    assert header.split() == "host CPU mean CPU peak memory peak sent received".split()
    cells = ["left", "0.75 of 2", "1.00", "5.00 MB of 9.00 MB", "3.00 kB", "2.70 kB"]
    assert left.split() == " ".join(cells).split()


def test_gpus_are_shown_where_there_are_some():
    with_gpu = two_hosts(gpu_share=0.5, gpu_memory_bytes=7_000_000)
    assert "50 %  " in usage_table(with_gpu) and "GPU" not in usage_table(two_hosts())
    assert ">GPU<" in usage_svg(with_gpu, "u") and ">GPU<" not in usage_svg(two_hosts(), "u")


def test_drawing_takes_its_name_and_the_colour_of_the_page():
    drawn = usage_svg(two_hosts(), "run-7")
    assert drawn.startswith("<svg") and "currentColor" in drawn
    assert 'id="run-7-' in drawn and 'aria-label="run-7"' in drawn


def test_picture_is_one():
    from PIL import Image

    with Image.open(io.BytesIO(usage_png(two_hosts()))) as image:
        image.load()
        assert image.format == "PNG" and min(image.size) > 600


def test_samples_without_memory_or_network_can_be_shown():
    bare = UsageSample(time_s=1.0, interval_s=1.0, cpu_cores=1.0, cpu_limit_cores=1.0)
    found = Recording(began_s=0.0, hosts={"a": (bare,)})
    assert "–" in usage_table(found)
    assert usage_svg(found, "u").startswith("<svg")


def test_page_needs_nothing_from_elsewhere_and_names_are_no_markup():
    page = usage_page(two_hosts(), "dir/<train>.py")
    assert "&lt;train&gt;.py" in page and "&lt;right&gt;" in page and "<right>" not in page
    assert "http:" not in page and "https:" not in page and "<script" not in page
    assert page.count("<svg") == 1


def test_numbers_come_back(tmp_path):
    made = two_hosts()
    _, _, path = write_usage(made, tmp_path, "train.py")
    assert from_json(Recording, path.read_text()) == made
