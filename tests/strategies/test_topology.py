"""Who stands beside whom: rings and servers chosen from measured links."""

import itertools
import random

import pytest

from reparto.comm import Meeting, ThreadGroup
from reparto.measure.links import measure_links, tournament
from reparto.spec import Link
from reparto.strategies import AllReduce, ParameterServer, costs_of
from reparto.strategies._topology import _edges, _good_ring, ring_order, server_order
from reparto.testing import run_members


def two_switches(hosts, slow=1e7, fast=1e9):
    """Even hosts on one switch, odd ones on the other, a slow line between."""
    links = [
        Link(
            source=str(one),
            target=str(two),
            latency_s=1e-4,
            rate_bits_per_s=fast if one % 2 == two % 2 else slow,
        )
        for one, two in itertools.combinations(range(hosts), 2)
    ]
    return costs_of(links, [str(one) for one in range(hosts)])


def crossings(order):
    return sum(one % 2 != two % 2 for one, two in itertools.pairwise([*order, order[0]]))


@pytest.mark.parametrize("hosts", [4, 7, 12, 13, 20])
def test_a_ring_crosses_the_slow_line_only_there_and_back(hosts):
    order = AllReduce.Config().order(two_switches(hosts))
    assert sorted(order) == list(range(hosts))
    assert crossings(order) == 2
    assert crossings(range(hosts)) >= hosts - 1


@pytest.mark.parametrize("seed", range(5))
def test_the_ring_of_few_hosts_is_the_best_one(seed):
    draw = random.Random(seed)
    costs = [[0.0] * 7 for _ in range(7)]
    for one, two in itertools.combinations(range(7), 2):
        costs[one][two] = costs[two][one] = draw.choice([1.0, 2.0, 3.0, 5.0]) + draw.random() / 10

    def worth(order):
        edges = _edges(costs, order)
        return max(edges), pytest.approx(sum(edges))

    best = min(
        ([0, *rest] for rest in itertools.permutations(range(1, 7))),
        key=lambda order: (max(_edges(costs, order)), sum(_edges(costs, order))),
    )
    assert worth(ring_order(costs)) == worth(best)
    assert max(_edges(costs, _good_ring(costs))) <= 1.7 * max(_edges(costs, best))


def test_workers_of_one_host_stay_side_by_side():
    costs = costs_of(
        [
            Link(source=one, target=two, latency_s=1e-4, rate_bits_per_s=1e9)
            for one, two in itertools.combinations("abcd", 2)
        ],
        list("aabbccdd"),
    )
    order = ring_order(costs)
    hosts = ["aabbccdd"[rank] for rank in order]
    assert len([1 for one, two in itertools.pairwise([*hosts, hosts[0]]) if one != two]) == 4


def test_servers_stand_where_all_reach_them_best():
    names = list("abcde")
    links = [
        # c has a thin line; a and b have thick ones
        Link(source=x, target=y, latency_s=1e-3, rate_bits_per_s=1e7 if "c" in x + y else 1e9)
        for x, y in itertools.combinations(names, 2)
        if {x, y} != {"d", "e"}
    ] + [Link(source="d", target="e", latency_s=1.0, rate_bits_per_s=1e6)]
    costs = costs_of(links, names)
    order = ParameterServer.Config(servers=2).order(costs)
    assert {names[order[place]] for place in (0, 2)} == {"a", "b"}
    assert sorted(order) == list(range(5))


def test_two_servers_share_no_host_where_another_is_nearly_as_good():
    links = [
        Link(source=one, target=two, latency_s=1e-3, rate_bits_per_s=1e8)
        for one, two in itertools.combinations("abc", 2)
    ]
    hosts = list("aabc")
    order = server_order(costs_of(links, hosts), [0, 2])
    assert hosts[order[0]] != hosts[order[2]]


@pytest.mark.parametrize("count", [2, 3, 6, 9])
def test_in_a_tournament_everyone_meets_everyone_once(count):
    members = [10 * number for number in range(count)]
    rounds = tournament(members)
    for pairs in rounds:
        players = [player for pair in pairs for player in pair]
        assert len(players) == len(set(players))
    met = sorted(pair for pairs in rounds for pair in pairs)
    assert met == list(itertools.combinations(members, 2))


def test_links_are_measured_between_hosts_and_known_to_all():
    meeting = Meeting(4, timeout_s=60)
    found = run_members(
        4,
        lambda rank, size: ThreadGroup(meeting, rank),
        lambda group: measure_links(group, ["a", "b", "b", "c"]),
    )
    assert all(links == found[0] for links in found)
    assert {(link.source, link.target) for link in found[0]} == {
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    }
    assert all(link.latency_s > 0 and link.rate_bits_per_s > 0 for link in found[0])
