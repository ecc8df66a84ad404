"""The captioning example: alone, shared out, and each of its parts that can be wrong silently."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.forked import forked_workers

from reparto.verify import verify

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "captioning"
TRAIN = FOLDER / "train.py"
SMALL = ("--scenes", "100", "--dimension", "16")
LINE = re.compile(r"step (\d+)  dev loss (\d+\.\d{4})  train \d+\.\d s")


@pytest.fixture
def example(monkeypatch):
    """Import a module of the example; its names are taken back afterwards."""
    names = [path.stem for path in FOLDER.glob("*.py")]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for name in names:
        sys.modules.pop(name, None)


def flickr8k(folder, images=30):
    """A folder in Flickr8k's form, of captions that differ from image to image."""
    things = ["dog", "cat", "boy", "girl", "horse", "bird"]
    names = [f"{number}.jpg" for number in range(images)]
    lines = [
        f"{name}#{i}\tA {things[number % 6]} runs , with {things[(number + i) % 6]}s 2 !"
        for number, name in enumerate(names)
        for i in range(5)
    ]
    folder.mkdir()
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    splits = {"train": names[:-10], "dev": names[-10:-5], "test": names[-5:]}
    for split, part in splits.items():
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(part) + "\n")
    return folder


def dev_losses(done):
    assert done.returncode == 0, done.stderr
    return {int(step): float(loss) for step, loss in LINE.findall(done.stdout)}


@pytest.mark.forked
def test_training_alone_learns_and_is_the_same_each_time(cli):
    # On loaded machines, plain torch itself now and then (1 of 20 runs with two threads, fewer
    # with one) steps otherwise from the same gradients: of three runs, two are the same.
    cli.env["OMP_NUM_THREADS"] = "1"
    arguments = (*SMALL, "--epochs", 5, "--steps", 60, "--lr", 0.01, "--evaluate-every", 20)
    first = dev_losses(cli.python(TRAIN, *arguments))
    assert list(first) == [20, 40, 60]
    assert first[60] < first[20] - 0.3
    second = dev_losses(cli.python(TRAIN, *arguments))
    assert second == first or dev_losses(cli.python(TRAIN, *arguments)) in (first, second)


@pytest.mark.forked
def test_training_ends_at_the_target(cli):
    losses = dev_losses(cli.python(TRAIN, *SMALL, "--target", 100, "--evaluate-every", 3))
    assert list(losses) == [3]


@pytest.mark.forked
def test_it_is_evaluated_and_saved_each_epoch(cli):
    losses = dev_losses(cli.python(TRAIN, *SMALL, "--epochs", 2))
    assert list(losses) == [13, 26]  # 80 scenes of five captions, 32 at a time
    saved = {path.name for path in (cli.folder / "checkpoints").iterdir()}
    assert saved == {"epoch-1.pt", "epoch-2.pt", "last.pt"}


@pytest.mark.forked
def test_checkpoint_is_captioned_and_scored(cli):
    pytest.importorskip("sacrebleu")
    dev_losses(cli.python(TRAIN, *SMALL, "--steps", 20))
    for beam in (1, 3):
        done = cli.python(FOLDER / "caption.py", "--beam", beam, "--limit", 5, "--show", 2)
        assert done.returncode == 0, done.stderr
        scores = re.findall(r"^BLEU-(\d) ([01]\.\d{4})$", done.stdout, re.M)
        assert [n for n, _ in scores] == ["1", "2", "3", "4"]
        assert done.stdout.count("model: ") == 2


@pytest.mark.forked
def test_flickr8k_trains_with_surrogate_features(cli, tmp_path):
    folder = flickr8k(tmp_path / "flickr8k")
    done = cli.python(TRAIN, "--data", folder, "--dimension", 16, "--steps", 2)
    assert list(dev_losses(done)) == [2]
    assert "surrogate" in done.stdout


@pytest.mark.forked
def test_vgg16_without_images_says_what_to_do(cli, tmp_path):
    folder = flickr8k(tmp_path / "flickr8k")
    done = cli.python(TRAIN, "--data", folder, "--features", "vgg16")
    assert done.returncode == 1
    assert "unpack" in done.stderr
    assert "Traceback" not in done.stderr


def test_shared_out_over_two_workers_it_prints_one_line_an_evaluation(cli):
    done = cli.run("run", "--workers", 2, TRAIN, *SMALL, "--steps", 20, "--evaluate-every", 10)
    assert list(dev_losses(done)) == [10, 20]
    assert (cli.folder / "checkpoints" / "last.pt").exists()


def test_shared_out_training_is_the_sequential_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [*SMALL, "--steps", "6", "--evaluate-every", "2"]
    with forked_workers():
        result = verify(TRAIN, arguments, workers=2, steps=6)
    assert result.verdict == "equal", result.divergence
    assert result.num_steps == 6
    assert len(result.values) == 4  # the loss and the words of the evaluations at 2 and 4


def test_model_for_flickr8k_has_the_known_number_of_parameters(example):
    model = example("model").MergeModel(7579)
    assert sum(parameter.numel() for parameter in model.parameters()) == 5_528_987


def test_cleaning_drops_punctuation_single_letters_and_digits(example):
    clean = example("vocabulary").clean
    assert clean("A tri-colored Dog 's 2 b4 toys , here .") == [
        "tricolored",
        "dog",
        "toys",
        "here",
    ]


def test_unknown_words_are_dropped_and_long_captions_cut(example):
    module = example("vocabulary")
    vocabulary = module.Vocabulary.of([["dog", "runs"], ["dog"]])
    assert len(vocabulary) == 5
    assert vocabulary.decode(vocabulary.encode(["dog", "never", "runs"])) == "dog runs"
    long = vocabulary.encode(["dog"] * 50)
    assert (len(long), long[-1]) == (module.MAX_LENGTH, vocabulary.numbers[module.END])


def test_padding_changes_no_loss(example):
    model = example("model").MergeModel(20, num_features=4, dimension=8).eval()
    train, collate = example("train"), example("data").collate
    samples = [(torch.ones(4), torch.arange(1, 1 + length)) for length in (4, 9)]
    summed = []
    for batch in ([samples[0]], [samples[1]], samples):
        features, words, targets = collate(batch)
        summed.append(train.loss_of(model(features, words), targets, "sum").item())
    assert summed[2] == pytest.approx(summed[0] + summed[1])


def test_surrogate_is_fixed_and_tells_images_apart(example):
    captions = {"a": [["dog", "runs"]], "b": [["cat"]], "c": [["dog"]], "d": [["bird"]]}
    surrogate = example("features").surrogate
    features = surrogate(captions, list(captions))
    assert np.array_equal(features, surrogate(captions, list(captions)))
    assert features.min() == 0
    likeness = np.corrcoef(features)
    assert likeness[0, 2] > likeness[0, 1] + 0.2


def test_scenes_have_the_same_features_however_many_threads(example, tmp_path):
    code = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]); import scenes\n"
        "print(hashlib.md5(scenes.draw_scenes(40)['train'][1].tobytes()).hexdigest())"
    )
    found = {
        subprocess.check_output(
            [sys.executable, "-c", code, str(FOLDER)],
            env={"OPENBLAS_NUM_THREADS": threads, "PATH": ""},
            text=True,
        )
        for threads in ("1", "2")
    }
    assert len(found) == 1


class Chain:
    """Stands for a model whose next word depends on the last one only, by a table."""

    def __init__(self, log_probs):
        self.log_probs = log_probs

    def read_image(self, features):
        return features.unsqueeze(1)

    def read_words(self, words, state):
        return self.log_probs[words], (torch.zeros(1, len(words), 1),)

    def predict(self, image, read):
        return read.clone()


@pytest.fixture
def chain(example):
    """The likeliest first word, `a`, leads nowhere good: `b` then END is the likeliest caption."""
    vocabulary = example("vocabulary").Vocabulary(["startseq", "endseq", "a", "b", "c", "d"])
    number = vocabulary.numbers
    probs = torch.full((7, 7), 1e-6)
    for word, followers in {
        "startseq": {"a": 0.6, "b": 0.4},
        "a": {"c": 0.34, "d": 0.33, "endseq": 0.33},
        "b": {"endseq": 1.0},
        "c": {"endseq": 0.5, "d": 0.5},
        "d": {"endseq": 1.0},
    }.items():
        for follower, prob in followers.items():
            probs[number[word], number[follower]] = prob
    return Chain(probs.log()), vocabulary


def test_beam_of_two_finds_the_caption_that_greedy_misses(example, chain):
    model, vocabulary = chain
    decode = example("decode")
    features = torch.zeros(3, 1)
    assert decode.greedy(model, features, vocabulary) == ["a c"] * 3
    assert decode.beam_search(model, features, vocabulary, 2) == ["b"] * 3


def test_beam_of_one_is_greedy(example):
    torch.manual_seed(0)
    vocabulary = example("vocabulary").Vocabulary(["startseq", "endseq", *"abcdefgh"])
    model = example("model").MergeModel(len(vocabulary), num_features=5, dimension=8).eval()
    features = 9 * torch.randn(12, 5)
    decode = example("decode")
    captions = decode.greedy(model, features, vocabulary)
    assert len(set(captions)) > 1
    assert decode.beam_search(model, features, vocabulary, 1) == captions


def test_bleu_takes_the_best_of_all_references(example):
    pytest.importorskip("sacrebleu")
    bleu_scores = example("bleu").bleu_scores
    right = [["dog runs over the grass"], ["other words", "cat sits on the mat"]]
    scores = bleu_scores(["dog runs over the grass", "cat sits on the mat"], right)
    assert scores == pytest.approx([1] * 4)
    half = bleu_scores(["dog cat"], [["dog bird"]])
    assert half == pytest.approx([0.5, 0, 0, 0])


TORCHVISION = """
from pathlib import Path
import torch
from torch import nn

class VGG16_Weights:
    class IMAGENET1K_V1:
        url = "https://host/vgg16.pth"
        @staticmethod
        def transforms():
            return lambda image: torch.full((3, 2, 2), float(image.getpixel((0, 0))[0]))

class vgg16(nn.Module):
    def __init__(self, weights):
        super().__init__()
        layers = [nn.Linear(12, 4096), nn.ReLU(), nn.Dropout(), nn.Identity(), nn.ReLU()]
        self.classifier = nn.Sequential(*layers, nn.Dropout(), nn.Linear(4096, 1000))
    def forward(self, images):
        return self.classifier(images.flatten(1))
"""


@pytest.fixture
def with_images(tmp_path, monkeypatch):
    """Flickr8k with image files; torchvision is played by a small model."""
    image = pytest.importorskip("PIL.Image")
    folder = flickr8k(tmp_path / "flickr8k")
    (folder / "Images").mkdir()
    for number in range(30):
        image.new("RGB", (2, 2), (8 * number, 0, 0)).save(folder / "Images" / f"{number}.jpg")
    package = tmp_path / "site" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(TORCHVISION)
    checkpoints = tmp_path / "torch" / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "vgg16.pth").touch()
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder, {"TORCH_HOME": str(tmp_path / "torch"), "PYTHONPATH": str(tmp_path / "site")}


@pytest.mark.forked
@pytest.mark.parametrize("command", [[], ["-m", "reparto", "run", "--workers", "2", "--no-probe"]])
def test_vgg16_features_are_made_once_and_kept(cli, with_images, command):
    folder, env = with_images
    cli.env.update(env)
    words = ("--data", folder, "--features", "auto", "--dimension", 16, "--steps", 2)
    first = cli.python(*command, TRAIN, *words)
    assert list(dev_losses(first)) == [2]
    assert "VGG16: 30 of 30 images" in first.stdout
    assert np.load(folder / "vgg16.npy").shape == (30, 4096)
    again = cli.python(*command, TRAIN, *words)
    assert "VGG16" not in again.stdout
    assert dev_losses(again).keys() == {2}


def test_rows_of_vgg16_follow_the_lists_not_the_sorted_names(example, with_images):
    folder, _ = with_images
    np.save(folder / "vgg16.npy", np.arange(30, dtype=np.float32)[:, None].repeat(4096, 1))
    splits = example("flickr8k").load_flickr8k(folder, "vgg16")
    names = [f"{number}.jpg" for number in range(30)]
    assert splits["test"][1][:, 0].tolist() == [sorted(names).index(n) for n in names[-5:]]
