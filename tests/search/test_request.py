"""Requests that are read from files: our own form, and that of an on-demand platform."""

import json
import math
import os

import pytest

from reparto.errors import UsageError
from reparto.search import load, read_request, search
from reparto.search._request import schemas
from reparto.search._request_schema import PLATFORM, faults_of
from reparto.search._setup import table_setup
from reparto.search._suggest import Suggester
from reparto.spec import Candidate, SearchRequest, to_plain
from tests.docs.blocks import ROOT

REQUESTS = sorted((ROOT / "examples" / "search" / "requests").glob("*.json"))
FOREST = {"param": "numTrees", "values": [10, 20]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number % 2} 1:{number} 2:{number / 3:.3f}" for number in range(1, 31)]
    (tmp_path / "two.libsvm").write_text("\n".join(rows) + "\n")
    (tmp_path / "three.libsvm").write_text("\n".join(["2 1:4 2:1", *rows]) + "\n")
    return tmp_path


def platform(**more):
    return {
        "domain": "binomial-classification",
        "dataset": {"path": "two.libsvm", "format": "libsvm"},
        "methods": [{"algorithm": "random-forest-classification", "hyperparameters": [FOREST]}],
        "parameterSearch": "grid",
        **more,
    }


def written(folder, plain, name="request.json"):
    path = folder / name
    path.write_text(plain if isinstance(plain, str) else json.dumps(plain))
    return path


def refusal(source):
    with pytest.raises(UsageError) as raised:
        read_request(source)
    return raised.value


# ------------------------------------------------------------------------- the platform's


def test_each_field_of_a_platforms_request_finds_its_place(folder):
    request = read_request(written(folder, platform(emailAddress="ana@example.org")))
    assert request.data == str(folder / "two.libsvm")
    assert (request.domain, request.search) == ("binary", "grid")
    assert request.techniques == ("random-forest",)
    assert request.spaces == {"random-forest": {"num_trees": (10, 20)}}
    assert request.notify == "ana@example.org"
    assert any("ana@example.org" in note for note in request.notes)
    assert not request.ensemble


@pytest.mark.parametrize(
    ("asked", "search"),
    [("grid", "grid"), ("random", "random"), ("bayesian-optimization", "bayes")],
)
def test_parameter_search_is_one_of_ours(folder, asked, search):
    request = read_request(written(folder, platform(parameterSearch=asked)))
    assert request.search == search
    assert request.trials == (None if search == "grid" else 2)
    assert request.only_asked


@pytest.mark.parametrize(("data", "domain"), [("two", "binary"), ("three", "multiclass")])
def test_classes_are_counted_where_the_domain_does_not_say_how_many(folder, data, domain):
    dataset = {"path": f"{data}.libsvm", "format": "libsvm"}
    request = read_request(written(folder, platform(domain="classification", dataset=dataset)))
    assert request.domain == domain


def test_other_formats_say_themselves_how_many_classes_there_are(folder):
    (folder / "two.csv").write_text("a,b\n1,x\n2,y\n")
    plain = platform(domain="classification", dataset={"path": "two.csv", "format": "csv"})
    assert read_request(written(folder, plain)).domain == "classification"


@pytest.mark.parametrize("said", [{}, {"format": "libsvm"}])
def test_what_is_in_the_file_counts_and_not_what_is_said_of_it(folder, said):
    rows = [f"{number},{number / 3:.3f},{'no' if number % 2 else 'yes'}" for number in range(30)]
    (folder / "two.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    plain = platform(domain="classification", dataset={"path": "two.csv", **said})
    request = read_request(written(folder, plain))
    assert request.domain == "classification"
    told = "dataset.format is libsvm, and the file holds csv: it is read as that"
    assert (told in request.notes) == bool(said)


def test_values_written_as_text_are_what_they_mean(folder):
    parameters = [
        {"param": "numTrees", "values": ["10", "20"]},
        {"param": "impurity", "values": ["gini"]},
        {"param": "subsamplingRate", "values": ["0.5", 1]},
        {"param": "bootstrap", "values": ["True", "false"]},
    ]
    methods = [{"algorithm": "random-forest-classification", "hyperparameters": parameters}]
    request = read_request(written(folder, platform(methods=methods)))
    (space,) = request.spaces.values()
    assert list(space.values()) == [(10, 20), ("gini",), (0.5, 1), (True, False)]


@pytest.mark.parametrize("search", ["grid", "random", "bayesian-optimization"])
def test_method_without_hyperparameters_is_tried_once_as_it_is(folder, search):
    methods = [{"algorithm": "naive-bayes"}, *platform()["methods"]]
    request = read_request(written(folder, platform(methods=methods, parameterSearch=search)))
    setup = table_setup(request)
    made = Suggester(setup.grounds, request.search, higher_is_better=True)
    tried = []
    while one := made.next():
        tried.append((one.technique, dict(one.settings)))
    setup.closing.close()
    assert sorted(tried, key=str) == [
        ("naive-bayes", {}),
        ("random-forest", {"num_trees": 10}),
        ("random-forest", {"num_trees": 20}),
    ]
    assert request.trials in (None, 3)


def test_same_algorithm_twice_has_a_grid_of_each(folder):
    other = {"param": "maxDepth", "values": [2, 3]}
    methods = [*platform()["methods"], {**platform()["methods"][0], "hyperparameters": [other]}]
    request = read_request(written(folder, platform(methods=methods)))
    assert [one.settings for one in request.candidates] == [
        {"num_trees": 10},
        {"num_trees": 20},
        {"max_depth": 2},
        {"max_depth": 3},
    ]


def test_one_combination_is_one(folder):
    parameters = [{"param": "numTrees", "values": [5]}]
    methods = [{"algorithm": "random-forest", "hyperparameters": parameters}]
    request = read_request(platform(methods=methods, parameterSearch="random"))
    assert request.trials == 1
    assert "the values make 1 combination: no more candidates are tried" in request.notes


def test_instances_become_workers_and_it_is_told(folder, monkeypatch):
    monkeypatch.setattr("reparto.search._request_instances.num_cores", lambda: 8)
    instances = [
        {"ec2Instance": "m5.large", "minInstances": 1, "maxInstances": 2},
        {"ec2Instance": "p3.2xlarge", "additionalHardware": ["gpu"], "maxInstances": 2},
    ]
    resources = {"instances": instances, "minTotalInstances": 2, "maxTotalInstances": 3}
    request = read_request(written(folder, platform(computationalResources=resources)))
    assert (request.min_workers, request.max_workers) == (2, 3)
    told = "\n".join(request.notes)
    assert "m5.large or p3.2xlarge" in told and "gpu is not used" in told


def test_sums_of_instances_count_where_no_total_is_given(folder, monkeypatch):
    monkeypatch.setattr("reparto.search._request_instances.num_cores", lambda: 8)
    resources = {"instances": [{"minInstances": 1, "maxInstances": 2}] * 2}
    request = read_request(written(folder, platform(computationalResources=resources)))
    assert (request.min_workers, request.max_workers) == (2, 4)


def test_more_instances_than_cores_are_as_many_workers_as_cores(folder, monkeypatch):
    monkeypatch.setattr("reparto.search._request_instances.num_cores", lambda: 2)
    resources = {"minTotalInstances": 4, "maxTotalInstances": 16}
    path = written(folder, platform(computationalResources=resources))
    assert (read_request(path).min_workers, read_request(path).max_workers) == (2, 2)
    assert any("4 to 16 instances" in note for note in read_request(path).notes)
    assert read_request(path, engine="ray").max_workers == 16


def test_paths_are_sought_beside_the_request_first_and_then_here(folder):
    beside = folder / "requests"
    beside.mkdir()
    path = written(beside, platform())
    assert read_request(path).data == "two.libsvm"
    (beside / "two.libsvm").write_text((folder / "two.libsvm").read_text())
    assert read_request(path).data == str(beside / "two.libsvm")


def test_function_needs_no_data(folder):
    arguments = [{"param": "x1", "values": [0, 3.1]}, {"param": "x2", "values": [2.3]}]
    methods = [{"algorithm": "Branin", "hyperparameters": arguments}]
    request = read_request({"domain": "misc-functions", "methods": methods})
    assert (request.domain, request.techniques) == ("function", ("branin",))
    assert request.spaces == {"branin": {"x1": (0, 3.1), "x2": (2.3,)}}


def perceptron(*parameters):
    parameters = [{"param": name, "values": values} for name, values in parameters]
    methods = [{"algorithm": "multilayer-perceptron-classifier", "hyperparameters": parameters}]
    return platform(methods=methods)


@pytest.mark.parametrize(
    ("parameters", "hidden"),
    [
        ([("layers", [[2, 5, 2], ["2", "4", "3", "2"]])], ((5,), (4, 3))),
        ([("layers", ["[2, 5, 2]"])], ((5,),)),
        (
            [("numHiddenLayers", [1, 2]), ("hiddenLayersWidth", [5, 32])],
            ((5,), (32,), (5, 5), (32, 32)),
        ),
        ([("inputLayerWidth", [2]), ("hiddenLayersWidth", [8])], ((8,),)),
    ],
)
def test_layers_of_a_perceptron_are_the_hidden_ones(folder, parameters, hidden):
    request = read_request(written(folder, perceptron(*parameters)))
    assert request.spaces["multilayer-perceptron"]["hidden_layers"] == hidden
    named = "layers" in parameters[0][0] or "inputLayerWidth" in parameters[0][0]
    assert any("follows from the data" in note for note in request.notes) or not named


def test_layers_that_cannot_be_are_told_where_they_stand(folder):
    plain = perceptron(("maxIter", [9]), ("layers", [[2, 5, 2], [2, -5, 2], 7]))
    lines = refusal(written(folder, plain)).message.splitlines()
    places = [line.split(": ")[1] for line in lines]
    where = "methods[0].hyperparameters[1].values"
    assert places == [f"{where}[1]", f"{where}[2]"]


def test_all_that_is_wrong_is_told_at_once_and_where(folder):
    methods = [
        {"algorithm": "random-forest-classification", "hyperparameters": [FOREST]},
        {"algorithm": "naive-bayes", "hyperparameters": [{"param": "smoothing", "values": "3"}]},
        {"algorithm": "naive-bayes", "hyperparameters": [{"values": []}]},
    ]
    plain = platform(
        domain="Regresion",
        methods=methods,
        parameterSearch="gird",
        emailAdress="ana@example.org",
        computationalResources={"minTotalInstances": 1.5},
    )
    error = refusal(written(folder, plain))
    assert error.message.splitlines() == [
        "request.json: domain: must be one of regression, classification, clustering, "
        "deep-learning, binomial-classification, multinomial-classification, misc-functions "
        '(was "Regresion"; did you mean regression?)',
        'request.json: methods[1].hyperparameters[0].values: must be a non-empty list (was "3")',
        "request.json: methods[2].hyperparameters[0].param: is missing: it must be a text",
        "request.json: methods[2].hyperparameters[0].values: must be a non-empty list (was [])",
        "request.json: parameterSearch: must be one of grid, random, bayesian-optimization "
        '(was "gird"; did you mean grid?)',
        "request.json: emailAdress: is not known here; did you mean emailAddress?",
        "request.json: computationalResources.minTotalInstances: must be a whole number (was 1.5)",
    ]
    assert "--schema" in error.remedy


def test_names_and_values_that_cannot_be_are_told_where_they_stand(folder):
    methods = [
        {"algorithm": "random-florist"},
        {"algorithm": "k-means"},
        {
            "algorithm": "random-forest-classification",
            "hyperparameters": [
                {"param": "numTreas", "values": [1]},
                {"param": "numTrees", "values": [5, -1]},
            ],
        },
    ]
    lines = refusal(written(folder, platform(methods=methods))).message.splitlines()
    places = [line.split(": ")[1] for line in lines]
    assert places == [
        "methods[0].algorithm",
        "methods[1].algorithm",
        "methods[2].hyperparameters[0].param",
        "methods[2].hyperparameters[1].values[1]",
    ]
    assert "random-forest" in lines[0]
    assert "k-means is not for binomial-classification" in lines[1]
    assert "num_trees" in lines[2]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dataset": {"path": "none.libsvm"}}, "dataset.path: there is no file none.libsvm"),
        ({"dataset": {}}, "dataset.path: is missing"),
        ({"emailAddress": "ana"}, "must be an address such as ana@example.org"),
        (
            {"computationalResources": {"minTotalInstances": 5, "maxTotalInstances": 2}},
            "at least 5 instances are asked for, and at most 2",
        ),
        (
            {"computationalResources": {"instances": [{"minInstances": 3, "maxInstances": 2}]}},
            "instances[0]: minInstances 3 is above maxInstances 2",
        ),
        ({"methods": []}, "methods: must be a non-empty list"),
        ({"domain": "deep-learning"}, "is no network"),
        ({"methods": [{"algorithm": "random-forest-regression"}]}, "it is for regression"),
        (
            {
                "domain": "multinomial-classification",
                "methods": [{"algorithm": "binomial-logistic-regression"}],
            },
            "it is for binary",
        ),
    ],
)
def test_field_that_cannot_be_honoured_is_refused_with_the_reason(folder, more, said):
    assert said in refusal(written(folder, platform(**more))).message


def test_dataset_is_missed_where_there_has_to_be_one(folder):
    plain = platform()
    del plain["dataset"], plain["methods"]
    lines = refusal(written(folder, plain)).message.splitlines()
    assert [line.split(": is")[0] for line in lines] == [
        "request.json: methods",
        "request.json: dataset",
    ]


def test_grid_of_a_million_points_is_refused_before_it_is_written_down(folder):
    values = [{"param": name, "values": [*range(1, 102)]} for name in ("numTrees", "maxDepth")]
    values.append({"param": "minInstancesPerNode", "values": [*range(1, 102)]})
    methods = [
        {"algorithm": "random-forest-classification"},
        {**platform()["methods"][0], "hyperparameters": values},
    ]
    error = refusal(written(folder, platform(methods=methods)))
    assert "1030302 points" in error.message and "one method" in error.remedy


# ----------------------------------------------------------------------------------- ours


def test_own_form_is_what_it_was_before_it_was_written(folder):
    request = SearchRequest(
        data=str(folder / "two.libsvm"),
        spaces={"network": {"layers": ((8, 4), (16,)), "rate": {"low": 0.1, "high": 1.0}}},
        candidates=(Candidate(number=3, technique="network", settings={"layers": (8, 4)}),),
        time_s=60.0,
    )
    path = written(folder, to_plain(request))
    assert read_request(path) == request


def test_paths_of_the_own_form_are_relative_to_the_file(folder):
    path = written(folder, {"data": "two.libsvm", "test": "three.libsvm"})
    os.chdir("/")
    request = read_request(path)
    assert (request.data, request.test) == (
        str(folder / "two.libsvm"),
        str(folder / "three.libsvm"),
    )


def test_unknown_names_and_wrong_kinds_of_the_own_form_are_all_told(folder):
    error = refusal(written(folder, {"data": "two.libsvm", "trails": 3, "folds": "few"}))
    assert "request.json: trails: is not known here" in error.message
    assert "request.json: folds: " in error.message and '(was "few")' in error.message


def test_missing_file_of_the_own_form_is_told_with_its_name(folder):
    error = refusal(written(folder, {"data": "two.libsvm", "test": "later.csv"}))
    assert error.message == f"request.json: test: there is no file later.csv in {folder}"


# ---------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"data": "a.csv",\n  "folds": }', "request.json:2:12: Expecting value"),
        ("[1]", "a request is an object (was [1])"),
        ('{"data": "a", "data": "b"}', "'data' stands there twice"),
        ('{"time_s": NaN}', "NaN is no number that JSON knows"),
    ],
)
def test_json_that_cannot_be_read_is_told_with_its_place(folder, text, said):
    assert said in refusal(written(folder, text)).message


def test_file_that_is_not_there_is_told(folder):
    assert "none.json: No such file" in refusal(folder / "none.json").message


def test_schema_that_is_printed_says_the_same_as_ours():
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schemas())
    validator = jsonschema.Draft202012Validator(PLATFORM)
    good = platform()
    bad = [
        platform(domain="x"),
        platform(methods=[]),
        platform(more=1),
        platform(emailAddress="x"),
        platform(computationalResources={"minTotalInstances": -1}),
        platform(methods=[{"algorithm": "k", "hyperparameters": [{"param": "k"}]}]),
    ]
    assert validator.is_valid(good) and not list(faults_of(PLATFORM, good))
    assert [validator.is_valid(one) for one in bad] == [False] * len(bad)
    assert all(list(faults_of(PLATFORM, one)) for one in bad)


# ------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_example_is_read_and_its_methods_are_known(path):
    request = read_request(path)
    assert request.techniques or request.candidates
    assert request.notify == "ana@example.org"


def test_there_is_an_example_of_each_algorithm():
    assert len(REQUESTS) == 16


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_example_runs_to_its_end(path, tmp_path):
    result = search(read_request(path), tmp_path / "found")
    assert result.best is not None
    assert [one.failure for one in result.evaluations if one.status == "failed"] == []
    assert result.ended in ("trials", "exhausted")
    asked = result.request.spaces.values()
    tried = {str(sorted(one.candidate.settings.items())) for one in result.evaluations}
    assert len(tried) == len(result.evaluations)
    assert len(tried) == math.prod(len(it) for space in asked for it in space.values())
    if result.request.domain != "function":
        model = load(tmp_path / "found")
        rows = model.read(result.request.data)
        assert len(model.predict(rows).values) == len(rows)
