"""Tests of one group run one after the other: pytest and pytest-xdist must agree on how."""

import os

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="not run with -n")
def test_a_group_is_known_to_the_one_who_shares_out_tests(request):
    assert request.node.nodeid.endswith("@groups")
