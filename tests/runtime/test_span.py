"""How many steps a script will make, told from inside a step."""

import runpy
import textwrap

import pytest

SCRIPTS = {
    "two loops": (
        """
        for epoch in range(3):
            for x in [1, 2, 3, 4]:
                step()
        """,
        12,
    ),
    "functions": (
        """
        def train(batches):
            for number, batch in enumerate(batches):
                step()

        def main(epochs, batches):
            for epoch in range(1, epochs + 1):
                train(batches)

        main(5, list(range(7)))
        """,
        35,
    ),
    "arguments": (
        """
        import argparse
        args = argparse.Namespace(epochs=4, sizes={"small": 6})
        loader = range(args.sizes["small"])
        for epoch in range(args.epochs * 2):
            for batch in zip(loader, loader):
                if batch:
                    step()
        """,
        48,
    ),
    "a loop around a loop header": (
        """
        def batches():
            return [1, 2]

        for epoch in range(2):
            steps = len(batches())
            for i in range(0, 10, 2):
                step()
        """,
        10,
    ),
    "a loop that is over": (
        """
        for _ in range(100):
            warm = 1
        for _ in range(3):
            step()
        """,
        3,
    ),
    "until it is good": (
        """
        loss = 1.0
        while loss > 0.5:
            for x in [1, 2]:
                step()
            loss = 0.0
        """,
        None,
    ),
    "made by the script": (
        """
        def batches():
            yield 1

        for x in batches():
            step()
        """,
        None,
    ),
    "no loop": ("step()", None),
}


@pytest.mark.parametrize(("text", "steps"), SCRIPTS.values(), ids=SCRIPTS)
def test_steps_are_the_lengths_of_the_loops_around_a_step(text, steps, tmp_path):
    from reparto.runtime._span import steps_of_script

    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    found = []
    # The loops of this test, and of pytest, are around the step as well.
    runpy.run_path(str(script), {"step": lambda: found.append(steps_of_script(str(tmp_path)))})
    assert set(found) == {steps}
