"""A lab's file, its flags and their units; and what is said where they are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reparto.errors import UsageError
from reparto.lab import Flags, parse_rate, parse_size, parse_time, rate_text, read_lab
from reparto.lab._read import MAX_HOSTS
from reparto.spec import LabHost, LabLink, Line

OFFICE = """\
rate = "100mbit"
cpu = 0.5
[[hosts]]
name = "old"
cpu = 0.2
down = "1 Gbit/s"
[[hosts]]
memory = "2GiB"
delay = "5ms"
jitter = "1ms"
loss = 0.01
[[links]]
between = ["old", "node-2"]
rate = "10mbit"
"""


def flags(nodes=None, name=None, **of_host):
    return Flags(nodes=nodes, name=name, of_host=of_host)


@pytest.fixture
def read(tmp_path):
    """Read the text of a file, called office.toml."""

    def read(text, given=None):
        path = tmp_path / "office.toml"
        path.write_text(text)
        return read_lab(path, given or flags())

    return read


def test_what_stands_above_holds_where_a_host_says_nothing_else(read):
    lab = read(OFFICE)
    assert lab.name == "office"
    assert lab.hosts == (
        LabHost(name="old", line=Line(up_bits_per_s=1e8, down_bits_per_s=1e9), cpu=0.2),
        LabHost(
            name="node-2",
            line=Line(
                up_bits_per_s=1e8, down_bits_per_s=1e8, delay_s=0.005, jitter_s=0.001, loss=0.01
            ),
            cpu=0.5,
            memory_bytes=2 << 30,
        ),
    )
    assert lab.links == (LabLink(between=("old", "node-2"), rate_bits_per_s=1e7),)


def test_flags_override_the_file_for_every_host(read):
    lab = read(OFFICE, flags(cpu=0.9, up="none", name="mine"))
    assert lab.name == "mine"
    assert [host.cpu for host in lab.hosts] == [0.9, 0.9]
    assert [host.line.up_bits_per_s for host in lab.hosts] == [None, None]
    assert [host.line.down_bits_per_s for host in lab.hosts] == [1e9, 1e8]


def test_a_number_of_nodes_replaces_the_hosts_of_the_file(read):
    lab = read(OFFICE.partition("[[links]]")[0], flags(nodes=3))
    assert [host.name for host in lab.hosts] == ["node-1", "node-2", "node-3"]
    assert {host.cpu for host in lab.hosts} == {0.5}


def test_flags_alone_describe_a_lab():
    lab = read_lab(None, flags(nodes=2, rate="10mbit", cpu=None))
    line = Line(up_bits_per_s=1e7, down_bits_per_s=1e7)
    assert lab.name == "lab"
    assert lab.hosts == (LabHost(name="node-1", line=line), LabHost(name="node-2", line=line))


def test_the_name_in_the_file_goes_before_the_name_of_the_file(read):
    assert read('name = "home"\nnodes = 1').name == "home"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes = ", "Invalid value"),
        ("", "no hosts"),
        ("nodes = 0", "nodes = 0"),
        ("nodes = true", "nodes = True"),
        ('nodes = "2"', "nodes = '2'"),
        (f"nodes = {MAX_HOSTS + 1}", f"nodes = {MAX_HOSTS + 1}"),
        ("[[hosts]]\n" * (MAX_HOSTS + 1), f"{MAX_HOSTS + 1} hosts"),
        ("nodes = 2\nspeed = 3", "no key 'speed'"),
        ("hosts = 3", "hosts is no list of tables"),
        ("nodes = 3\n[[hosts]]", "nodes = 3, but there are 1 hosts"),
        ("[[hosts]]\n[[hosts]]\nspeed = 3", "host 2: there is no key 'speed'"),
        ('[[hosts]]\nname = "a"\n[[hosts]]\nname = "a"', "two hosts are called a"),
        ('[[hosts]]\nname = "a b"', "'a b' is no name"),
        ('nodes = 1\nname = "../up"', "'../up' is no name"),
        (f'nodes = 1\nname = "{"a" * 41}"', "is no name"),
        ('nodes = 1\nname = "-a"', "'-a' is no name"),
        ('nodes = 1\nrate = "fast"', "node-1: up: 'fast'"),
        ('nodes = 1\ndown = "10mbps"', "node-1: down: '10mbps'"),
        ("nodes = 1\nrate = 100", "node-1: up: 100 is below"),
        ('nodes = 1\nrate = "-10mbit"', "node-1: up: '-10mbit'"),
        ("nodes = 1\nrate = true", "node-1: up: True"),
        ("nodes = 1\ndelay = 5", "node-1: delay: 5"),
        ('nodes = 1\njitter = "1 min"', "node-1: jitter: '1 min'"),
        ('nodes = 1\ndelay = "1ms"\njitter = "2ms"', "node-1: a jitter of 0.002 s"),
        ('nodes = 1\nmemory = "much"', "node-1: memory: 'much'"),
        ('nodes = 1\nmemory = "1e305gib"', "node-1: memory: '1e305gib'"),
        ("nodes = 1\ncpu = 0", "node-1: cpu = 0"),
        ("nodes = 1\ncpu = nan", "node-1: cpu = nan"),
        ("nodes = 1\ncpu = true", "node-1: cpu = True"),
        ('nodes = 1\ncpu = "half"', "node-1: cpu = 'half'"),
        ("nodes = 1\nloss = 1", "node-1: loss = 1"),
        ("nodes = 1\nloss = -0.1", "node-1: loss = -0.1"),
        ("nodes = 2\n[[links]]", "links: between = None"),
        ('nodes = 2\n[[links]]\nbetween = "node-1"', "links: between = 'node-1'"),
        ('nodes = 2\n[[links]]\nbetween = ["node-1"]', "links: between = ['node-1']"),
        ('nodes = 2\n[[links]]\nbetween = ["node-1", "node-1"]', "links: between"),
        ('nodes = 2\n[[links]]\nbetween = [["node-1"], "node-2"]', "links: between"),
        ('nodes = 2\n[[links]]\nbetween = ["node-1", "node-2"]', "links: no rate"),
        ('nodes = 2\n[[links]]\nbetween = ["node-1", "node-2"]\nrate = 1', "links: rate: 1"),
        ('nodes = 2\n[[links]]\nbetween = ["node-1", "x"]\nrate = "1mbit"', "no host 'x'"),
        ("nodes = 2\n[[links]]\nwidth = 2", "links: there is no key 'width'"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(read, text, told):
    with pytest.raises(UsageError) as raised:
        read(text)
    assert "office.toml: " in raised.value.message
    assert told in raised.value.message
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (flags(), "no hosts"),
        (flags(nodes=1, rate="x"), "node-1: up: 'x'"),
        (flags(nodes=1, cpu=-1.0), "node-1: cpu = -1.0"),
        (flags(nodes=1, loss=float("nan")), "node-1: loss = nan"),
        (flags(nodes=1, name="$(halt)"), "'$(halt)' is no name"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_as_such(given, told):
    with pytest.raises(UsageError) as raised:
        read_lab(None, given)
    assert raised.value.message.startswith("the command line: ")
    assert told in raised.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"away\.toml: No such file"):
        read_lab(tmp_path / "away.toml", flags())
    (tmp_path / "raw.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"raw\.toml: .*codec"):
        read_lab(tmp_path / "raw.toml", flags())


def test_a_file_whose_name_no_lab_can_have_is_refused(tmp_path):
    path = tmp_path / "my lab.toml"
    path.write_text("nodes = 1")
    with pytest.raises(UsageError, match="'my lab' is no name"):
        read_lab(path, flags())
    assert read_lab(path, flags(name="other")).name == "other"


@pytest.mark.parametrize("text", ["none", "None", "unlimited", "off"])
def test_no_limit_is_a_rate(text):
    assert parse_rate(text) is None


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_rate, "512kbit", 512e3),
        (parse_rate, " 1.5 GBIT/s ", 1.5e9),
        (parse_rate, "10mbitps", 1e7),
        (parse_rate, 2000000, 2e6),
        (parse_time, "250us", 250e-6),
        (parse_time, "0.1s", 0.1),
        (parse_size, "1kB", 1000),
        (parse_size, "1.5MiB", 3 << 19),
        (parse_size, "2e3", 2000),
    ],
)
def test_units_are_read_in_any_case(parse, text, expected):
    assert parse(text) == pytest.approx(expected)


@given(st.floats(256e3, 1e12))
def test_a_rate_that_was_told_reads_as_the_same_rate(rate):
    assert parse_rate(rate_text(rate)) == pytest.approx(rate, rel=1e-5)


@given(
    st.text(max_size=12) | st.from_regex(r"[0-9]{1,3}(e[0-9]{1,3})?[kmg]?i?b(it)?", fullmatch=True)
)
def test_any_text_is_a_finite_quantity_or_told_as_wrong_with_its_place(text):
    for parse in (parse_rate, parse_time, parse_size):
        try:
            found = parse(text, "--there")
        except UsageError as error:
            assert error.message.startswith("--there: ")
        else:
            assert found is None or 0 <= found < float("inf")
