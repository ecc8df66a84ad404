"""`--hosts hosts.toml`: workers on hosts that a command enters."""

import json

import pytest

from reparto.cli._hosts_file import read_hosts
from reparto.errors import UsageError

TWO = """\
[[hosts]]
name = "left"
cores = 1
enter = "env STANDS_ON=left"

[[hosts]]
name = "right"
cores = 1
memory = "2GiB"
enter = ["env", "STANDS_ON=right"]
"""


def test_workers_stand_on_the_hosts_of_the_file_and_are_entered(cli, train):
    hosts = cli.write(TWO, "hosts.toml")
    script = cli.write(
        "import os\nprint('STANDS', os.environ['STANDS_ON'])\n" + train.read_text(), "named.py"
    )
    done = cli.run(
        "run", "--hosts", hosts, "--no-probe", "--steps", 3, "--json", "out.json", script
    )
    assert done.returncode == 0, done.stderr
    assert "STANDS left" in done.stdout
    found = json.loads((script.parent / "out.json").read_text())
    assert found["plan"]["placement"] == ["left", "right"]


def test_what_a_file_says_of_a_host_is_believed(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(TWO)
    left, right = read_hosts(path).hosts
    assert (left.name, left.num_cores, left.enter) == ("left", 1, ("env", "STANDS_ON=left"))
    assert (right.memory_bytes, right.num_gpus, right.address) == (2 << 30, 0, "127.0.0.1")
    assert right.enter == ("env", "STANDS_ON=right")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hosts = 3", "no list of hosts"),
        ("", "no list of hosts"),
        ("[[hosts]]\ncores = 2", "host 1: it has no name"),
        ('[[hosts]]\nname = ""', "host 1: name = ''"),
        ('[[hosts]]\nname = "a"\n[[hosts]]\nname = "a"', "two hosts are called a"),
        ('[[hosts]]\nname = "a"\ncore = 2', "host 1: unknown core"),
        ('[[hosts]]\nname = "a"\ncores = 0', "host 1: cores = 0"),
        ('[[hosts]]\nname = "a"\nenter = 3', "host 1: enter = 3"),
        ('[[hosts]]\nname = "a"\nenter = "it\'s"', "host 1: enter = "),
        ('[[hosts]]\nname = "a"\nmemory = "many"', "host 1: memory"),
        ("[[hosts", "hosts.toml: "),
    ],
)
def test_a_file_that_lists_no_hosts_is_bad_usage_that_says_where(tmp_path, text, told):
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_hosts(path)
    assert told in caught.value.message
    assert caught.value.remedy


def test_bad_usage_is_told_to_programs_too(cli, train):
    done = cli.run("run", "--hosts", "nowhere.toml", "--json", "-", train)
    assert done.returncode == 2
    assert "nowhere.toml" in str(json.loads(done.stdout))
    hosts = cli.write(TWO, "hosts.toml")
    for words in (("run", "--engine", "ray"), ("plan", "--lab", "lab.toml")):
        assert cli.run(*words, "--hosts", hosts, train).returncode == 2
