"""The user's script runs converted, and still looks like theirs."""

import subprocess
import sys
import traceback

from reparto.runtime._program import compile_source, line_map
from reparto.spec import Program, SourceFile, to_json

ORIGINAL = """\
import math

def f(x):
    return math.sqrt(x)

for x in [4, -1]:
    f(x)
"""
CONVERTED = """\
import reparto
import math

reparto.init()

def f(x):
    return math.sqrt(x)

for x in reparto.shard([4, -1]):
    if True:
        f(x)
"""


def file(original, converted, path="/nowhere/train.py", module="__main__"):
    return SourceFile(path=path, module=module, original=original, converted=converted)


def lines_of(code, namespace):
    try:
        exec(code, namespace)
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [(frame.filename, frame.lineno) for frame in frames if "nowhere" in frame.filename]
    raise AssertionError("nothing was raised")


def test_traceback_shows_the_lines_of_the_original():
    without_calls = CONVERTED.replace("reparto.init()", "pass").replace("reparto.shard", "")
    converted = without_calls.replace("import reparto", "import sys")
    code = compile_source(file(ORIGINAL, converted))
    assert lines_of(code, {}) == [("/nowhere/train.py", 7), ("/nowhere/train.py", 4)]


def test_lines_map_to_those_that_they_came_from():
    mapped = line_map(ORIGINAL.splitlines(), CONVERTED.splitlines())
    theirs = ORIGINAL.splitlines()
    for ours, (place, same) in mapped.items():
        text = CONVERTED.splitlines()[ours - 1]
        if same and text:
            assert theirs[place - 1] == text
    assert mapped[1] == (1, False)  # added: belongs to what follows
    assert mapped[9] == (6, False)  # changed: the line in its place
    assert mapped[11] == (7, False)  # indented: its columns are others


def test_unchanged_text_keeps_its_columns():
    code = compile_source(file(ORIGINAL, ORIGINAL))
    assert any(column for *_, column in code.co_positions() if column)


def test_every_line_of_a_changed_script_compiles_whatever_moved():
    original = "\n".join(f"a{i} = (\n    {i} +\n    1)" for i in range(50))
    converted = "\n\n".join(f"if 1:\n    a{i} = (\n        {i} +\n        1)" for i in range(50))
    namespace = {}
    exec(compile_source(file(original, converted)), namespace)
    assert namespace["a49"] == 50


SCRIPT = """\
import pickle, sys, warnings
from dataclasses import dataclass
import near.mod
import other

@dataclass
class Point:
    x: int

print(pickle.loads(pickle.dumps(Point(3))))
print(near.mod.VALUE, near.mod.__file__, other.VALUE)
print(sys.modules["__main__"].Point is Point)
"""


def run_program(program):
    runner = (
        "import sys\n"
        "from reparto.runtime._program import run_script\n"
        "from reparto.spec import Program, from_json\n"
        "run_script(from_json(Program, sys.stdin.read()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", runner],
        input=to_json(program),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_changed_modules_come_converted_and_others_from_disk(tmp_path):
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "__init__.py").touch()
    module = tmp_path / "near" / "mod.py"
    module.write_text("VALUE = 'theirs'\n")
    (tmp_path / "other.py").write_text("VALUE = 'from disk'\n")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    program = Program(
        script=str(script),
        files=(
            file(SCRIPT, "import os\n" + SCRIPT, str(script)),
            file("VALUE = 'theirs'\n", "VALUE = 'ours'\n", str(module), "near.mod"),
        ),
    )
    assert run_program(program) == [
        "Point(x=3)",
        f"ours {module} from disk",
        "True",
    ]


def test_module_of_the_user_is_found_before_a_namesake_that_torch_brought(tmp_path):
    theirs = tmp_path / "queue.py"
    theirs.write_text("VALUE = 'theirs'\n")
    script = tmp_path / "train.py"
    text = "import queue\nprint(queue.VALUE)\n"
    script.write_text(text)
    program = Program(
        script=str(script),
        files=(
            file(text, text, str(script)),
            file("VALUE = 'theirs'\n", "VALUE = 'theirs'\n", str(theirs), "queue"),
        ),
    )
    assert run_program(program) == ["theirs"]
