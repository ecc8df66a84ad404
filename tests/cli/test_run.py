"""`reparto run`: what it prints, what it leaves, how it exits."""

import json
import os

import pytest

from reparto.runtime.accelerate import _products


def test_training_over_two_workers_prints_what_was_found_planned_and_done(cli, train):
    done = cli.run("run", "--workers", 2, "--no-probe", train)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["epoch", "0"],
        ["epoch", "1"],
    ]
    for words in ("loader", "DataLoader", "all-reduce", "2 workers", "done after", "16 steps"):
        assert words in done.stderr
    assert cli.running() == []


def test_one_worker_prints_bit_for_bit_what_plain_python_prints(cli):
    script = cli.write(
        "import torch\n"
        "from torch import nn\n"
        "torch.manual_seed(3)\n"
        "model = nn.Linear(64, 64)\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "for step in range(20):\n"
        "    loss = model(torch.randn(32, 64)).pow(2).mean()\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "print(loss.item().hex(), model.weight.double().sum().item().hex())\n"
    )
    for _ in range(3):
        shared, plain = cli.run("run", "--workers", 1, script), cli.python(script)
        assert shared.returncode == 0, shared.stderr
        if shared.stdout == plain.stdout:
            break
        again = {cli.python(script).stdout for _ in range(2)}  # on a busy machine it may differ
        assert again != {plain.stdout}, "plain torch repeats itself, and this is something else"
    assert shared.stdout == plain.stdout


@pytest.mark.forked
def test_arguments_after_the_script_are_its_own(cli):
    script = cli.write("import sys, torch\nprint(sys.argv[1:])\n")
    single = ("run", "--strategy", "single")
    assert cli.run(*single, script, "--workers", 3).stdout == "['--workers', '3']\n"
    assert cli.run(*single, "--", script, "--json", "-").stdout == "['--json', '-']\n"
    assert cli.run(*single, script, "--", "-h").stdout == "['-h']\n"


def test_script_sees_itself_as_with_plain_python(cli):
    cli.write("NAME = __name__", "sub/near.py")
    script = cli.write(
        "import os, sys\nimport near\n"
        "print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), near.NAME)\n"
        "print('RANK' in os.environ, __spec__, sys.modules['__main__'].near is near)\n",
        "sub/train.py",
    )
    shared = cli.run("run", "--strategy", "single", script)
    assert shared.stdout == cli.python(script).stdout, shared.stderr


@pytest.mark.forked
def test_json_on_standard_output_is_alone_there(cli, train):
    done = cli.run("run", "--workers", 2, "--no-probe", "--json", "-", train)
    document = json.loads(done.stdout)
    assert document["status"] == "done"
    assert document["plan"]["num_workers"] == 2
    assert document["result"]["num_steps"] == 16
    assert {finding["kind"] for finding in document["findings"]} >= {"loader", "model", "loop"}
    assert "epoch 1" in done.stderr


@pytest.mark.forked
def test_files_that_the_script_writes_are_told_and_written_once(cli, train):
    with train.open("a") as file:
        file.write('torch.save(model.state_dict(), "out/model.pt")\n')
        file.write('open("log.txt", "a").write("line\\n")\n')
    (cli.folder / "out").mkdir()
    done = cli.run("run", "--workers", 2, "--no-probe", train)
    assert done.returncode == 0, done.stderr
    assert "out/model.pt" in done.stderr
    assert (cli.folder / "log.txt").read_text() == "line\n"


@pytest.mark.forked
def test_steps_leaves_after_so_many(cli, train):
    done = cli.run("run", "--workers", 2, "--no-probe", "--steps", 3, "--json", "-", train)
    assert json.loads(done.stdout)["result"]["num_steps"] == 3


def test_dry_run_shows_commands_and_starts_nothing(cli, train):
    done = cli.run("run", "--workers", 3, "--dry-run", "--json", "-", train)
    assert done.returncode == 0
    assert "done after" not in done.stderr
    assert "RANK=2" in done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == "planned"
    assert [worker["env"]["RANK"] for worker in document["launch"]["workers"]] == ["0", "1", "2"]


def test_more_workers_than_cores_are_told_not_refused(cli, train):
    many = len(os.sched_getaffinity(0)) + 1
    done = cli.run("run", "--workers", many, "--dry-run", train)
    assert done.returncode == 0
    assert "they take turns" in done.stderr


def test_missing_file_is_bad_usage(cli):
    done = cli.run("run", "nothing.py")
    assert done.returncode == 2
    assert "nothing.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"],
        ["--set", "x"],
        ["--set", "nothing=1"],
        ["--workers", "2", "--set", "balance=2:1:1"],
        ["--engine", "none"],
        ["--strategy", "none"],
    ],
)
def test_nonsense_is_bad_usage(cli, train, arguments):
    done = cli.run("run", *arguments, train)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert cli.running() == []


def test_syntax_error_is_refused_with_its_line(cli):
    script = cli.write("import torch\nfor x in\n    pass\n")
    done = cli.run("run", script)
    assert done.returncode == 3
    assert "train.py:2" in done.stderr
    assert "Traceback" not in done.stderr
    assert cli.running() == []


def test_script_without_a_training_loop_is_refused(cli):
    script = cli.write("import torch\nprint(torch.zeros(2).sum().item())\n")
    done = cli.run("run", script)
    assert done.returncode == 3
    assert "--strategy single" in done.stderr


@pytest.mark.forked
def test_refused_script_runs_on_one_worker_if_the_user_agrees(cli):
    script = cli.write("import torch\nprint(torch.zeros(2).sum().item())\n")
    done = cli.run("run", "--strategy", "single", script)
    assert (done.returncode, done.stdout) == (0, "0.0\n")


def test_script_that_distributes_itself_is_launched_as_torchrun_would(cli):
    script = cli.write(
        "import os\nimport torch\nimport torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        'dist.init_process_group("gloo")\n'
        "model = DistributedDataParallel(torch.nn.Linear(2, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(3):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(4, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "if dist.get_rank() == 0:\n"
        '    print("world", dist.get_world_size(), dist.is_torchelastic_launched())\n'
        "dist.destroy_process_group()\n"
    )
    done = cli.run("run", "--workers", 2, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "world 2 True\n"


def test_parent_imports_neither_torch_nor_pydantic(cli, train):
    cli.write(
        "import sys\nfrom reparto.cli import main\n"
        f"status = main(['run', '--workers', '2', '--no-probe', {str(train)!r}])\n"
        "heavy = [n for n in ('torch', 'pydantic', 'numpy') if n in sys.modules]\n"
        "assert (status, heavy) == (0, []), (status, heavy)\n",
        "parent.py",
    )
    done = cli.python("parent.py")
    assert done.returncode == 0, done.stderr


def test_an_accelerated_run_prints_what_plain_python_prints(cli, train):
    cli.env["REPARTO_CAPTURE"] = "repeat"
    done, plain = cli.run("run", "--accelerate", train), cli.python(train)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert "13 of 16 steps were captured graphs" in done.stderr


def test_an_accelerated_run_on_a_cpu_tells_what_it_tried(cli):
    script = cli.write(
        "import torch\n"
        "model = torch.nn.Linear(64, 64)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "x = torch.randn(512, 64)\n"
        "for step in range(600):\n"
        "    optimizer.zero_grad()\n"
        "    (model(x) - x).pow(2).mean().backward()\n"
        "    optimizer.step()\n"
        "print(torch.get_float32_matmul_precision())\n"
    )
    result = cli.folder / "result.json"
    done = cli.run("run", "--accelerate", "--no-probe", "--json", result, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "highest\n"
    notes = json.loads(result.read_text())["result"]["notes"]
    told = [note for note in notes if "steps that were timed" in note]
    # Where oneDNN rounds, only fewer threads are tried, and that not if others starve this test.
    assert told or not _products.ways(is_relaxed=False)
    assert all(note in done.stderr for note in told)


@pytest.mark.parametrize("others", [("--workers", 2), ("--strategy", "gossip", "--relaxed")])
def test_acceleration_is_for_one_worker(cli, train, others):
    done = cli.run("run", "--accelerate", *others, train)
    assert done.returncode == 2
    assert "acceleration is for one worker" in done.stderr
    assert "leave out --accelerate" in done.stderr
