"""What `--strategies` understands."""

import pytest

from reparto import strategies
from reparto.errors import UsageError
from reparto.strategies import Single
from reparto.sweep import every_entry, parse_entries


def test_kinds_stand_apart_by_commas_and_settings_by_colons():
    first, second = parse_entries("all-reduce, diloco:sync_every=64:compressor.kind=quantize")
    assert (first.label, first.strategy.kind, first.strategy.settings) == (
        *("all-reduce", "all-reduce"),
        {},
    )
    assert second.label == "diloco sync_every=64 compressor.kind=quantize"
    assert second.strategy.settings == {"sync_every": 64, "compressor.kind": "quantize"}


def test_same_strategy_twice_has_two_labels():
    labels = [entry.label for entry in parse_entries("gossip,single,gossip")]
    assert labels == ["gossip", "single", "gossip (2)"]


@pytest.mark.parametrize("text", ["", "single,,gossip", "gossip:graph", "gossip:=ring", ":x=1"])
def test_what_is_not_of_that_form_is_bad_usage(text):
    with pytest.raises(UsageError, match="--strategies"):
        parse_entries(text)


def test_by_default_every_exact_strategy_is_taken_and_relaxed_ones_by_consent(monkeypatch):
    class Plugged(Single.Config):
        kind = "plugged"

    monkeypatch.setitem(strategies._registry._known, "plugged", Plugged)
    exact = {entry.strategy.kind for entry in every_entry(relaxed=False)}
    every = {entry.strategy.kind for entry in every_entry(relaxed=True)}
    assert {"single", "all-reduce", "plugged"} <= exact
    assert "diloco" in every - exact
    assert every == set(strategies.available())
