"""Sampler: settings of one technique, drawn with regard to how others of it did."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from reparto.errors import MissingExtraError
from reparto.search._ground import Ground, at, holds, place_of
from reparto.search._space import Choice, Float, Int, Space
from reparto.spec import Settings

#: Before so many have been told, settings are drawn at random.
RANDOM_FIRST = 8
#: How far from a good candidate its neighbours are, where 1 is the whole range of a setting.
NEAR, MOVED = 0.2, 0.5


class Sampler(Protocol):
    """Draws settings, and is told how they did."""

    def draw(self) -> Settings:
        """Settings to try next."""

    def told(
        self, settings: Settings, loss: float | None, state: Literal["done", "pruned", "failed"]
    ) -> None:
        """How settings did; a smaller loss is better, None if nothing is known of it."""


class Uniform:
    """Draws at random, whatever it is told."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)

    def draw(self) -> Settings:
        """Each setting by itself."""
        return {name: at(it, self._random.random()) for name, it in self._space.items()}

    def told(self, settings: Settings, loss: float | None, state: str) -> None:
        """Nothing changes."""


class Informed:
    """Half of what it draws is Optuna's (a tree of Parzen estimators), half is near the best ones.

    With few trials the neighbours of good settings are worth as much as a model of all of them;
    with many the model is. Which is which is drawn, so that neither can fail alone.
    """

    def __init__(self, ground: Ground, seed: int) -> None:
        self._space, self._random = ground.space, random.Random(seed)
        self._uniform = Uniform(ground.space, seed + 1)
        self._study = _Study(ground.space, seed)
        self._good: list[tuple[float, Settings]] = []

    def draw(self) -> Settings:
        """Near one of the three best, or by the model."""
        if self._good and self._random.random() < 0.5:
            return self._near(self._random.choice(self._good[:3])[1])
        return self._study.draw() if self._space else {}

    def told(self, settings: Settings, loss: float | None, state: str) -> None:
        """Remember it; settings that are not named have their default, and nothing is known."""
        if loss is not None and state == "done":
            self._good.append((loss, settings))
            self._good.sort(key=lambda one: one[0])
        self._study.told(settings, loss, state)

    def _near(self, settings: Settings) -> Settings:
        fresh = self._uniform.draw()
        found: dict[str, Any] = {}
        for name, it in self._space.items():
            if name not in settings or not holds(it, settings[name]):
                found[name] = fresh[name]
            elif self._random.random() >= MOVED:
                found[name] = settings[name]
            elif isinstance(it, Choice):
                found[name] = fresh[name] if self._random.random() < 0.5 else settings[name]
            else:
                found[name] = at(it, place_of(it, settings[name]) + self._random.gauss(0.0, NEAR))
        return found


class _Study:
    """Optuna's sampler over one space; choices are drawn by their place."""

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise MissingExtraError("optuna", "search") from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space = optuna, space
        self._distributions = {name: self._distribution(it) for name, it in space.items()}
        with warnings.catch_warnings():  # multivariate sampling calls itself experimental
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(
                multivariate=True, n_startup_trials=RANDOM_FIRST, seed=seed, constant_liar=True
            )
        self._study = optuna.create_study(sampler=sampler)
        self._asked: dict[str, Any] = {}

    def _distribution(self, it: Float | Int | Choice) -> Any:
        kinds = self._optuna.distributions
        if isinstance(it, Choice):
            return kinds.CategoricalDistribution(list(range(len(it.values))))
        if isinstance(it, Int):
            return kinds.IntDistribution(it.low, it.high, log=it.log)
        return kinds.FloatDistribution(it.low, it.high, log=it.log)

    def draw(self) -> Settings:
        trial = self._study.ask(self._distributions)
        found = {
            name: it.values[trial.params[name]] if isinstance(it, Choice) else trial.params[name]
            for name, it in self._space.items()
        }
        self._asked[repr(sorted(found.items()))] = trial
        return found

    def told(self, settings: Settings, loss: float | None, state: str) -> None:
        states = self._optuna.trial.TrialState
        fails = loss is None or state == "failed"
        as_optuna = (
            states.FAIL if fails else states.PRUNED if state == "pruned" else states.COMPLETE
        )
        trial = self._asked.pop(repr(sorted(settings.items())), None)
        if trial is not None:
            if as_optuna is states.PRUNED:
                trial.report(loss, 1)
            values = loss if as_optuna is states.COMPLETE else None
            self._study.tell(trial, values, state=as_optuna)
        elif not fails and self._is_whole(settings):
            self._add(settings, loss, as_optuna)

    def _is_whole(self, settings: Mapping[str, Any]) -> bool:
        return all(
            name in settings and holds(it, settings[name]) for name, it in self._space.items()
        )

    def _add(self, settings: Settings, loss: float | None, state: Any) -> None:
        params = {
            name: it.values.index(settings[name]) if isinstance(it, Choice) else settings[name]
            for name, it in self._space.items()
        }
        pruned = state is self._optuna.trial.TrialState.PRUNED
        made = self._optuna.trial.create_trial(
            state=state,
            value=None if pruned else loss,
            params=params,
            distributions=self._distributions,
            intermediate_values={1: loss} if pruned else None,
        )
        self._study.add_trial(made)
