"""``reparto lab sweep``: every number of nodes, rate and strategy, drawn."""

SUMMARY = "x"


def add_arguments(parser): ...
