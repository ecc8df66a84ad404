"""Decides how a job is shared out. Reads what was measured, predicts, never starts a process."""

from reparto.plan._everything import place, plan_run

__all__ = ["place", "plan_run"]
