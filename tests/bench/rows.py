"""Rows as if they had been measured, for tests of what follows from them."""

import dataclasses

from reparto.bench._grid import hidden_of, num_parameters
from reparto.spec import Measurement, Work


def row(model="50", *, rows=32, step_s=0.01, work=None, **more):
    hidden = hidden_of(model)
    told = {
        "suite": "grid",
        "model": model,
        "num_parameters": num_parameters(hidden) if hidden else 4_352_641,
        "num_samples": 1000,
        "batch_rows": rows,
        "data": "abc",
        "target_steps": 100,
    }
    given = {
        "work": Work(**(told | (work or {}))),
        "hidden": hidden,
        "step_s": step_s,
        "low_s": step_s and 0.99 * step_s,
        "high_s": step_s and 1.01 * step_s,
        "epoch_s": step_s and 32 * step_s,
        "loss_first": 1.0,
        "loss_last": 0.1,
        "loss_constant": 0.8,
    }
    return Measurement(**(given | more))


def call(model="50", *, rows=1, step_s=0.001, p99_s=None, **more):
    made = row(model, rows=rows, step_s=step_s, mode="infer", form=more.pop("form", "eager"))
    more = {"p99_s": p99_s or step_s, "epoch_s": None, "loss_last": None, **more}
    return dataclasses.replace(made, **more)
