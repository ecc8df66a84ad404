"""Training of the network: an ordinary loop in the two lines of reparto's library.

    reparto.prepare(model, optimizer)       one process: they are what they were
    reparto.shard((x[rows], y[rows]))       N workers: each computes its rows of the same batches

The same function is called in a search's worker and, for a network that is to be trained on
several workers, by ``_network_run.py`` under reparto's engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import reparto
from reparto.search.techniques._network_module import Shape, TabularNetwork, loss_of, mixed

#: So often smaller steps are tried where the held-out rows are foretold no better, and how small.
DROPS, DROP = 2, 0.25
#: At the end, all rows are gone through so often.
LAST_EPOCHS = 10
#: Rows are answered so many at a time.
ANSWER_ROWS = 4096


@dataclass(frozen=True)
class Course:
    """How a network is trained.

    Attributes:
        epochs: At most.
        batch_rows: Of each step.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        patience: Steps become smaller when the held-out rows were not foretold better for so many
            epochs, and training ends when that does not help any more.
        held: So many rows are held out, the first ones.
        seed: Of all that is random.
    """

    epochs: int
    batch_rows: int
    learning_rate: float
    weight_decay: float
    patience: int
    held: int
    seed: int


class Training:
    """A network that is being trained.

    Args:
        shape: Of the network.
        course: How it is trained.

    Attributes:
        model: As it is after the last epoch.
        best: Its weights when it foretold the held-out rows best, at the end trained further on
            all rows; empty if none are held out.
        best_loss: Of these rows, then.
        epoch: So many are done.
    """

    def __init__(self, shape: Shape, course: Course) -> None:
        self.shape, self.course = shape, course
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(course.seed)
            self.model = TabularNetwork(shape)
            self._random = torch.get_rng_state()
        self.best: dict[str, Tensor] = {}
        self.best_loss, self.best_epoch, self.epoch = math.inf, 0, 0
        self._since, self._drops = 0, 0
        self._is_finished = False
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=course.learning_rate,
            weight_decay=course.weight_decay,
            fused=True,
        )

    @property
    def is_over(self) -> bool:
        """Whether more epochs would change nothing."""
        return self.epoch >= self.course.epochs or self._drops > DROPS

    def go_on(self, x: NDArray[np.float32], y: NDArray[Any], until: int) -> None:
        """Train until so many epochs are done, or it is over. All workers are to call it.

        Args:
            x: Rows; the first of them are held out.
            y: Classes, or float32 values.
            until: Epochs in all.
        """
        rows, targets = torch.from_numpy(x), torch.from_numpy(y)
        held = self.course.held
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            model, optimizer = reparto.prepare(self.model, self._optimizer)
            while self.epoch < until and not self.is_over:
                self._train(model, optimizer, rows[held:], targets[held:])
                self.epoch += 1
                if held:
                    self._look(rows[:held], targets[:held])
            if self.best and self.is_over and not self._is_finished:
                self._finish(model, optimizer, rows, targets)
            self._random = torch.get_rng_state()

    def _finish(
        self, model: TabularNetwork, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
    ) -> None:
        """The held-out rows have done their work: from the best on, small steps with all rows."""
        self._is_finished = True
        self.model.load_state_dict(self.best)
        self._pace(DROP)
        for _ in range(LAST_EPOCHS):
            self._train(model, optimizer, x, y)
        self.best = {name: it.clone() for name, it in self.model.state_dict().items()}

    def _pace(self, factor: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self.course.learning_rate * factor

    def answer(self, x: NDArray[np.float32], *, classes: bool) -> NDArray[np.float64]:
        """What the network says of these rows, at its best."""
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        if self.best:
            self.model.load_state_dict(self.best)
        found = self._answers(torch.from_numpy(x), classes=classes)
        self.model.load_state_dict(kept)
        return found.numpy().astype(np.float64)

    def weights(self) -> dict[str, Tensor]:
        """Of the network at its best."""
        return self.best or self.model.state_dict()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to go on elsewhere: tensors, and numbers."""
        tensors = {f"model.{name}": it for name, it in self.model.state_dict().items()}
        tensors |= {f"best.{name}": it for name, it in self.best.items()}
        tensors["random"] = self._random
        for place, moments in self._optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": it for name, it in moments.items()}
        numbers = {
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_loss": self.best_loss if self.best else None,
            "since": self._since,
            "drops": self._drops,
            "is_finished": self._is_finished,
        }
        return {name: it.contiguous() for name, it in tensors.items()}, numbers

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Be what `state` says."""
        self.model.load_state_dict(_under(tensors, "model."))
        self.best = _under(tensors, "best.")
        self._random = tensors["random"]
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _under(tensors, "optimizer.").items():
            place, _, moment = name.partition(".")
            moments.setdefault(int(place), {})[moment] = value
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self._since, self._drops = numbers["since"], numbers["drops"]
        self._is_finished = numbers["is_finished"]
        self._pace(DROP**self._drops)
        self.epoch, self.best_epoch = numbers["epoch"], numbers["best_epoch"]
        self.best_loss = math.inf if numbers["best_loss"] is None else numbers["best_loss"]

    def __getstate__(self) -> dict[str, Any]:
        # What the optimizer remembers is no part of a model and of its size.
        return {**self.__dict__, "_optimizer": None}

    def _train(
        self, model: TabularNetwork, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
    ) -> None:
        model.train()
        order, size = torch.randperm(len(x)), self.course.batch_rows
        for begin in range(0, len(x), size):
            rows = order[begin : begin + size]
            batch, targets = reparto.shard((x[rows], y[rows]))
            loss = loss_of(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _look(self, x: Tensor, y: Tensor) -> None:
        """How well are the held-out rows foretold? Every worker sees all of them."""
        answers = self._answers(x, classes=not y.is_floating_point())
        if y.is_floating_point():
            loss = float((answers - y).square().mean())
        else:
            chances = answers.gather(1, y[:, None]).clamp_min(1e-12)
            loss = float(-chances.log().mean())
        if not math.isfinite(loss):
            raise ValueError(f"the network's loss is {loss} after {self.epoch} epochs")
        if loss < self.best_loss:
            self.best_loss, self.best_epoch, self._since = loss, self.epoch, self.epoch
            self.best = {name: it.clone() for name, it in self.model.state_dict().items()}

        elif self.epoch - self._since >= self.course.patience:
            self._drops, self._since = self._drops + 1, self.epoch
            self._pace(DROP**self._drops)

    @torch.no_grad()
    def _answers(self, x: Tensor, *, classes: bool) -> Tensor:
        self.model.eval()
        parts = [mixed(self.model(part), classes=classes) for part in x.split(ANSWER_ROWS)]
        return torch.cat(parts)


@contextmanager
def threads_held(threads: int) -> Iterator[None]:
    """Let torch compute with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: it for name, it in tensors.items() if name.startswith(prefix)}
