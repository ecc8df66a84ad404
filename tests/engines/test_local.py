"""The local engine, as the library's users meet it."""

import os
import sys
import textwrap

import pytest

from reparto import api, engines
from reparto.errors import UsageError
from reparto.spec import Done, Job, Options, Output, Program, SourceFile


def program(tmp_path, text, *, launch="plain"):
    text = textwrap.dedent(text)
    path = tmp_path / "script.py"
    path.write_text(text)
    file = SourceFile(path=str(path), module="__main__", original=text, converted=text)
    return Program(script=str(path), files=(file,), launch=launch)


class Recorder(api.Watcher):
    def __init__(self):
        self.events = []

    def event(self, event):
        self.events.append(event)

    def output(self, stream):
        return b"".join(
            event.data
            for event in self.events
            if isinstance(event, Output) and event.stream == stream
        ).decode()


def execute(program, workers=1, **options):
    watcher = Recorder()
    engine = engines.build("local")
    cluster = engine.cluster()
    plan = api.plan_run(Job(script=program.script, workers=workers), cluster, program)
    result = api.execute(
        program, plan, Options(), engine=engine, cluster=cluster, watcher=watcher, **options
    )
    return result, watcher


def test_output_comes_as_events_and_the_end_as_a_result(tmp_path):
    script = program(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    result, watcher = execute(script)
    assert result.status == "done"
    assert (watcher.output("stdout"), watcher.output("stderr")) == ("out\n", "err\n")
    assert [event.exit_code for event in watcher.events if isinstance(event, Done)] == [0]
    assert 0 < result.startup_s <= result.total_s


def test_workers_of_a_script_that_distributes_itself_find_each_other(tmp_path):
    script = program(
        tmp_path,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.ones(1) * (dist.get_rank() + 1)
        dist.all_reduce(total)
        print(int(total), flush=True)
        """,
        launch="torchrun",
    )
    result, watcher = execute(script, workers=2)
    assert (result.status, watcher.output("stdout")) == ("done", "3\n")


def test_scratch_folders_are_removed(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    result, _ = execute(program(tmp_path, "import os; print(os.environ['REPARTO_SCRATCH'])"))
    assert result.status == "done"
    assert list(scratch.iterdir()) == []


def test_what_a_script_left_running_outlives_it_if_all_went_well(tmp_path):
    script = program(
        tmp_path,
        """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(child.pid)
        """,
    )
    result, watcher = execute(script)
    pid = int(watcher.output("stdout"))
    assert result.status == "done"
    os.kill(pid, 9)  # raises if it is gone


def test_working_folder_is_the_one_asked_for(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    _, watcher = execute(program(tmp_path, "import os; print(os.getcwd())"), cwd=str(folder))
    assert watcher.output("stdout") == f"{folder}\n"


def test_worker_that_ends_by_itself_without_a_word_is_a_failure(tmp_path):
    result, _ = execute(program(tmp_path, "import os; os._exit(9)"))
    assert result.status == "failed"
    assert (result.failure.error, result.failure.message) == ("Exit", "left with exit status 9")


def test_large_output_arrives_whole(tmp_path):
    script = program(tmp_path, "for i in range(20000): print('x' * 50, i)")
    _, watcher = execute(script)
    lines = watcher.output("stdout").splitlines()
    assert len(lines) == 20000
    assert lines[-1].endswith(" 19999")


def test_launch_prints_as_commands():
    engine = engines.build("local")
    cluster = engine.cluster()
    plan = api.plan_run(Job(script="t.py", workers=2), cluster, Program(script="t.py"))
    launch = engine.prepare(None, plan, cluster, Options())
    first, second = launch.as_text().splitlines()
    assert "RANK=0" in first and "RANK=1" in second
    assert f"{sys.executable} -P -m reparto.runtime.worker" in first
    assert launch == engine.prepare(None, plan, cluster, Options())


def test_unknown_engine_and_needless_address_are_bad_usage():
    with pytest.raises(UsageError, match="local, peers, ray"):
        engines.build("cloud")
    with pytest.raises(UsageError):
        engines.build("local", address="10.0.0.1")
