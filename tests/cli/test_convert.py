"""`reparto convert`: source to standard output, diagnostics to standard error."""

import ast
import json


def test_converted_source_is_printed_and_is_python(cli, train):
    done = cli.run("convert", train)
    assert done.returncode == 0, done.stderr
    assert "reparto" in ast.unparse(ast.parse(done.stdout))
    assert "loader" in done.stderr


def test_diff_shows_only_what_changes(cli, train):
    done = cli.run("convert", "--diff", train)
    assert done.stdout.startswith("--- a/train.py")
    assert "+import reparto" in done.stdout


def test_folder_takes_all_files_of_a_program(cli):
    cli.write(
        "def train_one(model, loader, optimizer):\n"
        "    for x, y in loader:\n"
        "        loss = ((model(x) - y) ** 2).mean()\n"
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
        "engine.py",
    )
    script = cli.write(
        "import torch\nfrom torch import nn\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "from engine import train_one\n"
        "loader = DataLoader(TensorDataset(torch.randn(8, 2), torch.randn(8, 1)), batch_size=4)\n"
        "model = nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "train_one(model, loader, optimizer)\n"
    )
    done = cli.run("convert", "-o", "shared/", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    written = sorted(path.name for path in (cli.folder / "shared").iterdir())
    assert written == ["engine.py", "train.py"]


def test_original_is_never_written_over(cli, train):
    before = train.read_text()
    assert cli.run("convert", "-o", train, train).returncode == 2
    assert train.read_text() == before


def test_json_on_standard_output_is_alone_there(cli, train):
    document = json.loads(cli.run("convert", "--json", "-", train).stdout)
    assert document["status"] == "converted"
    assert document["files"][0]["converted"] != document["files"][0]["original"]


def test_refused_script_exits_with_three_and_says_where(cli):
    script = cli.write("import torch\nprint(1\n")
    done = cli.run("convert", "--json", "-", script)
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "refused"
    assert "train.py:2" in done.stderr
