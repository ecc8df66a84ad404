"""`reparto plan` and `reparto run --strategy auto` on real workers."""

import json

import pytest
from tests.conftest import TRAIN, ForkedCli

from reparto.spec import Forecast, Survey, from_json, from_plain

pytestmark = [pytest.mark.forked, pytest.mark.xdist_group("plan")]  # one survey for all

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(1024, 64), torch.randn(1024, 1))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(40):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    open("epochs.txt", "a").write("epoch\\n")
"""
#: The command, which leaves out less on a machine that is slow.
PATIENT = """\
import sys
from reparto import _planning
from reparto.cli import main
_planning.LIMIT_S = _planning.LONGEST_S = 150.0
sys.exit(main(sys.argv[1:]))
"""
NUM_PARAMETERS = 64 * 256 + 256 + 256 + 1


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan for two workers: the folder, what was printed, the forecast."""
    cli = ForkedCli(tmp_path_factory.mktemp("work"))
    script = cli.write(SCRIPT)
    options = ["--workers", "2", "--relaxed", "--save-survey", "survey.json", "--out", "out"]
    patient = cli.write(PATIENT, "patient.py")
    done = cli.python(patient, "plan", *options, "--json", "plan.json", script)
    assert done.returncode == 0, done.stderr
    forecast = from_plain(Forecast, json.loads((cli.folder / "plan.json").read_text()))
    return cli, done, forecast


def test_the_script_is_measured(planned):
    _, _, forecast = planned
    survey = forecast.survey
    assert survey.profile.num_parameters == NUM_PARAMETERS
    assert survey.profile.gradient_bytes == 4 * NUM_PARAMETERS
    assert survey.profile.batch_rows == 32
    assert survey.num_steps == 40 * 32
    assert survey.alone.rows == 32
    assert 0 < survey.alone.step_s < 1
    assert {one.num_workers for one in survey.workers} == {1, 2}
    for worker in survey.workers:
        for apart in (False, True):  # as they are together, and as they are apart
            rows = [one.rows for one in worker.slices if one.apart == apart]
            assert rows == sorted(rows)
            assert len(rows) >= 2
        assert all(one.backward_s > 0 and one.forward_s > 0 for one in worker.slices)
    assert {one.pattern for one in survey.exchanges} >= {"all-reduce", "gather", "push", "swap"}
    assert {one.strategy.kind for one in survey.costs} >= {"all-reduce", "diloco", "local-sgd"}
    assert survey.profile.base_bytes > 0
    played = {one.strategy.kind for one in survey.rehearsals}
    assert played >= {"all-reduce", "local-sgd", "parameter-server", "diloco"}
    assert all(one.num_workers == 2 and one.step_s > 0 for one in survey.rehearsals)


def test_nothing_that_the_script_writes_is_kept(planned):
    cli, _, _ = planned
    assert not (cli.folder / "epochs.txt").exists()


def test_every_strategy_is_predicted_and_the_best_two_were_tried(planned):
    _, done, forecast = planned
    kinds = {one.strategy.kind for one in forecast.predictions}
    assert kinds >= {"single", "all-reduce", "parameter-server", "sharded", "diloco", "gossip"}
    assert forecast.predictions[0].num_workers == 1
    assert len([one for one in forecast.predictions[1:] if one.is_measured]) == 2
    assert forecast.why in done.stdout
    assert "samples/s" in done.stdout
    for name in ("forecast.html", "forecast.png", "forecast.json"):
        assert (cli_folder(planned) / "out" / name).stat().st_size > 1000


def cli_folder(planned):
    return planned[0].folder


def test_what_was_measured_is_planned_with_again_and_nothing_is_started(planned):
    cli, _, forecast = planned
    survey = from_json(Survey, (cli.folder / "survey.json").read_text())
    assert survey == forecast.survey
    script = cli.folder / "train.py"
    done = cli.run("plan", "--survey", "survey.json", "--relaxed", "--json", "-", script)
    assert done.returncode == 0, done.stderr
    again = from_plain(Forecast, json.loads(done.stdout))
    assert again.predictions == forecast.predictions
    dear = cli.run("plan", "--survey", "survey.json", "--price", "1/h", "--budget", "100", script)
    assert dear.returncode == 0, dear.stderr


def test_what_was_not_measured_can_be_imagined(planned):
    cli, _, _ = planned
    script = cli.folder / "train.py"
    what_if = ("--what-if", "hosts=8,rate=10mbit")
    done = cli.run("plan", "--survey", "survey.json", *what_if, "--json", "-", script)
    assert done.returncode == 0, done.stderr
    forecast = from_plain(Forecast, json.loads(done.stdout))
    assert max(one.num_workers for one in forecast.predictions) == 8
    assert forecast.what_if == "hosts=8,rate=10mbit"
    assert forecast.best.num_workers == 1  # such a line carries no gradients


def test_a_survey_that_is_none_is_bad_usage(planned):
    cli, _, _ = planned
    script = cli.folder / "train.py"
    for text in ("{", '{"script": "x", "wheels": 4}'):
        cli.write(text, "bad.json")
        done = cli.run("plan", "--survey", "bad.json", script)
        assert done.returncode == 2
        assert "bad.json" in done.stderr or "Survey" in done.stderr
    assert cli.run("plan", "--survey", "away.json", script).returncode == 2


def test_auto_says_why_and_how_the_prediction_came_out_also_of_a_short_script(cli):
    script = cli.write(TRAIN)
    done = cli.run("run", "--strategy", "auto", "--workers", 2, "--json", "result.json", script)
    assert done.returncode == 0, done.stderr
    document = json.loads((cli.folder / "result.json").read_text())
    forecast = from_plain(Forecast, document["forecast"])
    assert forecast.survey.num_steps == 16
    assert forecast.survey.profile.batch_rows == 8
    assert len(forecast.predictions) > 1
    assert forecast.why in done.stderr
    assert document["result"]["predicted_step_s"] == forecast.best.step_s
    assert "a step: predicted" in done.stderr
    assert document["plan"]["num_workers"] == forecast.best.num_workers
    assert done.stdout.count("epoch") == 2


def test_a_script_that_fails_is_told_with_its_own_words(cli):
    script = cli.write("raise ValueError('no data there')\n" + TRAIN)
    done = cli.run("plan", "--workers", 2, script)
    assert done.returncode == 1
    assert "no data there" in done.stderr


def test_a_dry_run_measures_nothing(cli):
    done = cli.run("run", "--strategy", "auto", "--dry-run", cli.write(TRAIN))
    assert done.returncode == 2
    assert "reparto plan" in done.stderr
