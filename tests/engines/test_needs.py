"""Which paths a script names, so that a host that lacks one can be told before training."""

import textwrap

import pytest

from reparto.engines._needs import needs
from reparto.spec import Program, SourceFile


@pytest.fixture
def named(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("1,2\n")
    (tmp_path / "model.pt").write_text("")
    (tmp_path / "3").write_text("")

    def find(text="", *args):
        text = textwrap.dedent(text).replace("HERE", str(tmp_path))
        file = SourceFile(path="/p/train.py", module="__main__", original=text, converted=text)
        program = Program(script="/p/train.py", args=args, files=(file,))
        return [(need.named, need.where) for need in needs(program, str(tmp_path))]

    return find


@pytest.mark.parametrize("args", [("data/x.csv",), ("--data", "data/x.csv"), ("--d=data/x.csv",)])
def test_argument_that_is_a_path_is_needed(named, args):
    assert named("", *args) == [("data/x.csv", "an argument")]


def test_argument_that_is_no_path_is_not_needed(named):
    assert named("", "3", "--lr", "0.1", "--out", "new.pt", ".") == []


@pytest.mark.parametrize(
    "text",
    [
        'open("data/x.csv")',
        'open("data/x.csv", "rb")',
        'pd.read_csv("data/x.csv", header=None)',
        'np.loadtxt(fname="data/x.csv")',
        'Path("data/x.csv").read_text()',
        'Path("data/x.csv").open()',
        'parser.add_argument("--data", default="data/x.csv")',
    ],
)
def test_file_that_the_source_reads_is_needed(named, text):
    assert named(f"# a comment\n{text}") == [("data/x.csv", "train.py:2")]


@pytest.mark.parametrize(
    "text",
    [
        'open("model.pt", "w")',
        'open("model.pt", mode="ab")',
        'Path("model.pt").open("w")',
        'torch.save(model, "model.pt")',
        'parser.add_argument("--save-weights", default="model.pt")',
        'pd.read_csv("https://example.org/x.csv")',
        "open(name)",
        "this is no Python",
    ],
)
def test_file_that_is_written_or_unknown_is_not_needed(named, text):
    assert named(text) == []


def test_default_is_not_needed_where_the_user_said_otherwise(named):
    text = 'parser.add_argument("--data", default="data/x.csv")'
    assert named(text, "--data", "elsewhere.csv") == []
    assert named(text, "--data=elsewhere.csv") == []


def test_absolute_path_in_the_source_has_to_lie_just_there(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("")
    text = f'open("{path}")'
    file = SourceFile(path="/p/train.py", module="__main__", original=text, converted=text)
    program = Program(script="/p/train.py", args=(str(path),), files=(file,))
    (need,) = needs(program, "/")
    assert not need.fixed  # as an argument it can be told where the file is
    (need,) = needs(Program(script="/p/train.py", files=(file,)), "/")
    assert need.fixed
