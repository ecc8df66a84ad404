"""Scripts before and after: numbers that may come later, and those that may not."""

import textwrap
from pathlib import Path

import pytest

from reparto.convert import accelerate

HEAD = """\
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.ones(2, 1)] * 3
n = 3


def step(x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss


"""

CHANGED = {
    "a sum": (
        """
        total = 0.0
        for x in batches:
            total += step(x).item()
        print(total)
        """,
        """
        total = 0.0
        for x in batches:
            total += reparto.later(step(x), total)
        total = reparto.now(total)
        print(total)
        """,
    ),
    "a list": (
        """
        losses = []
        for x in batches:
            losses.append(step(x).item())
        """,
        """
        losses = []
        for x in batches:
            losses.append(reparto.later(step(x), losses))
        losses = reparto.now(losses)
        """,
    ),
    "a product": (
        """
        total = 0
        for x in batches:
            total += len(x) * step(x).item() / n  # a mean
        """,
        """
        total = 0
        for x in batches:
            total += len(x) * reparto.later(step(x), total) / n  # a mean
        total = reparto.now(total)
        """,
    ),
    "parentheses": (
        """
        total = 0
        for x in batches:
            total += (step(x) - 1.5).item()
        """,
        """
        total = 0
        for x in batches:
            total += reparto.later((step(x) - 1.5), total)
        total = reparto.now(total)
        """,
    ),
    "loops in loops": (
        """
        for epoch in range(2):
            total = 0
            for x in batches:
                total += step(x).item()
            print(epoch, total)
        """,
        """
        for epoch in range(2):
            total = 0
            for x in batches:
                total += reparto.later(step(x), total)
            total = reparto.now(total)
            print(epoch, total)
        """,
    ),
    "a method, and a loop that ends the file": (
        """
        class Trainer:
            def fit(self):
                total, seen = 0, []
                while len(seen) < 3:
                    seen.append(1)
                    total += step(batches[0]).item()""",
        """
        class Trainer:
            def fit(self):
                total, seen = 0, []
                while len(seen) < 3:
                    seen.append(1)
                    total += reparto.later(step(batches[0]), total)
                total = reparto.now(total)
        """,
    ),
    "two of them, of which one is needed": (
        """
        total = best = 0
        for x in batches:
            loss = step(x)
            total += loss.item()
            best += loss.item()
            if best > 3:
                break
        """,
        """
        total = best = 0
        for x in batches:
            loss = step(x)
            total += reparto.later(loss, total)
            best += loss.item()
            if best > 3:
                break
        total = reparto.now(total)
        """,
    ),
}

UNCHANGED = {
    "printed": "total += step(x).item()\n    print(total)",
    "compared": "total += step(x).item()\n    if total > 3: break",
    "in a condition": "total += step(x).item() if n else 0",
    "counted in itself": "losses.append(step(x).item() * len(losses))",
    "subtracted": "total -= step(x).item()",
    "a sum of two": "total += step(x).item() + 1",
    "a divisor": "total += 1 / step(x).item()",
    "an item of a list": "losses[0] += step(x).item()",
    "an attribute": "model.total += step(x).item()",
    "read by a function that is made there": "total += step(x).item()\n    f = lambda: total",
    "an item with an index": "total += step(x).item(0)",
    "no training": "total += x.sum().item()",
    "deleted": "total += step(x).item()\n    del total",
}

FUNCTIONS = {
    "left in mid-loop": """
        def fit():
            total = 0
            for x in batches:
                total += step(x).item()
                if len(x) > 5:
                    return total
    """,
    "of the module": """
        total = 0
        def fit():
            for x in batches:
                global total
                total += step(x).item()
    """,
    "handed out": """
        def fit():
            total = 0
            for x in batches:
                total += step(x).item()
                yield from x
    """,
}


@pytest.fixture
def accelerated(tmp_path: Path):
    def run(text):
        path = tmp_path / "train.py"
        path.write_text(HEAD + textwrap.dedent(text).lstrip("\n"))
        (file,) = accelerate(path).files
        assert file.original == path.read_text()
        return file

    return run


@pytest.mark.parametrize("name", CHANGED)
def test_numbers_that_nothing_waits_for_come_later(name, accelerated):
    before, after = CHANGED[name]
    converted = accelerated(before).converted
    assert textwrap.dedent(after).strip() in converted
    compile(converted, "train.py", "exec")


@pytest.mark.parametrize("name", CHANGED)
def test_the_changed_script_comes_to_the_same(name, accelerated):
    file = accelerated(CHANGED[name][0])
    found = []
    for text in (file.original, file.converted):
        import torch

        torch.manual_seed(0)
        names = {"__name__": "train"}
        exec(compile(text, "train.py", "exec"), names)
        found.append([names.get("total"), names.get("losses")])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", UNCHANGED)
def test_numbers_that_a_loop_uses_are_left_alone(name, accelerated):
    text = f"total, losses = 0, [0]\nfor x in batches:\n    {UNCHANGED[name]}\n"
    file = accelerated(text)
    assert file.converted == file.original


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_leave_a_loop_are_left_alone(name, accelerated):
    file = accelerated(FUNCTIONS[name])
    assert file.converted == file.original
