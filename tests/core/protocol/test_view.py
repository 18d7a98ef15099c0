"""P4: what a malicious aggregator can read is the sum of a whole component and nothing smaller.

Every test asks real silos and nodes, as a malicious aggregator would, and then solves for all
combinations of their answers in which the unknown masks cancel.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from hubbub.core.errors import ProtocolError
from protocol.parties import World, refused, sessions_of, world
from protocol.view import View

PAIRWISE = world()
NODES = world(nodes=2)
ALL = (1, 2, 3, 4)


def view(w: World) -> View:
    return View(w, sessions_of(w))


def sums(*groups: Iterable[int], turn: str = "1.0") -> list[dict[str, int]]:
    """The plain sums over groups of silos."""
    return [{f"{silo}@{turn}": 1 for silo in sorted(group)} for group in groups]


def test_an_honest_round_shows_the_sum_and_nothing_else() -> None:
    seen = view(PAIRWISE)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    assert seen.readable() == sums(ALL)


def test_every_proper_subset_of_answers_shows_nothing() -> None:
    for left_out in ALL:
        seen = view(PAIRWISE)
        for silo in set(ALL) - {left_out}:
            seen.ask_silo(silo, ALL)
        assert seen.readable() == []


@pytest.mark.parametrize("colluders", [(4,), (3, 4)])
def test_colluding_silos_see_the_sum_of_the_others(colluders: tuple[int, ...]) -> None:
    seen = view(PAIRWISE)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    assert seen.readable(colluders) == sums(set(ALL) - set(colluders))


def test_all_but_one_colluding_see_the_last_one_who_has_only_its_noise() -> None:
    """The limit of P4, so that the algebra is seen to find what is there."""
    seen = view(PAIRWISE)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    assert seen.readable((2, 3, 4)) == sums((1,))


def test_silos_told_different_active_sets_have_masks_that_do_not_cancel() -> None:
    seen = view(PAIRWISE)
    for silo, active in ((1, (1, 2, 3)), (2, ALL), (3, ALL), (4, ALL)):
        seen.ask_silo(silo, active)
    assert seen.readable() == []
    assert seen.readable((4,)) == []


def test_two_answers_with_different_active_sets_cannot_be_subtracted() -> None:
    """Attempts 0 and 1 differ by silo 4; fresh masks and noise make them two sums."""
    seen = view(PAIRWISE)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    for silo in (1, 2, 3):
        seen.ask_silo(silo, (1, 2, 3), attempt=1)
    assert seen.readable() == sums(ALL) + sums((1, 2, 3), turn="1.1")


def test_silos_asked_in_different_attempts_or_rounds_show_nothing() -> None:
    seen = view(PAIRWISE)
    for silo, turn in ((1, (1, 0)), (2, (1, 1)), (3, (2, 0)), (4, (1, 0))):
        seen.ask_silo(silo, ALL, *turn)
    assert seen.readable() == []


@pytest.mark.parametrize("others", [(2,), (3, 4), (2, 3, 4)], ids=str)
def test_p4_silos_shown_different_models_have_masks_that_do_not_cancel(
    others: tuple[int, ...],
) -> None:
    seen = view(PAIRWISE)
    for silo in ALL:
        seen.ask_silo(silo, ALL, value=float(silo in others))
    assert seen.readable() == []
    for colluder in ALL:  # two honest silos that saw one MODEL need all honest ones to
        left = set(ALL) - {colluder}
        alike = left.isdisjoint(others) or left <= set(others)
        assert seen.readable((colluder,)) == (sums(left) if alike else [])


@pytest.mark.parametrize("seed", range(8))
def test_p4_different_models_isolate_nobody_on_a_sparse_graph(seed: int) -> None:
    """Whatever is readable is the sum of a whole component of honest silos that saw one MODEL."""
    w = world(10, degree=4, quorum=8)
    sessions, draw = sessions_of(w), random.Random(seed)
    silos, seen = list(w.roster.silos), View(w, sessions)
    shown = {silo: float(draw.randrange(2)) for silo in silos}
    colluders = set(draw.sample(silos, draw.randint(0, 4)))
    for silo in silos:
        seen.ask_silo(silo, silos, value=shown[silo])
    honest = set(silos) - colluders
    joined = {i: set(sessions[i].secrets) & honest for i in honest}
    whole = {component(joined, one) for one in honest}
    alike = {group for group in whole if len({shown[one] for one in group}) == 1}
    found = seen.readable(colluders)
    assert {frozenset(int(name.split("@")[0]) for name in one) for one in found} == alike


# Compute nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(2,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("told", [0.0, 1.0])
def test_p4_a_node_unmasks_no_silos_that_were_shown_different_models(
    others: tuple[int, ...], told: float
) -> None:
    """One node is honest, and told that all have answered the one MODEL, or the other."""
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL, value=float(silo in others))
    seen.ask_node(5, ALL, value=told)
    assert seen.readable(colluders=(6,)) == []


def test_p4_a_node_told_one_model_unmasks_none_who_saw_another() -> None:
    """The request names the quorum: three, of whom two were shown another MODEL."""
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL, value=float(silo in (2, 3)))
    seen.ask_node(5, (1, 2, 3), value=0.0)
    seen.ask_node(6, (1, 2, 3), value=1.0)
    assert seen.readable() == []
    assert seen.readable(colluders=(6,)) == []
    seen = view(NODES)  # all of the three were shown one, silo 4 another
    for silo in ALL:
        seen.ask_silo(silo, ALL, value=float(silo == 4))
    seen.ask_node(5, (1, 2, 3))
    assert seen.readable(colluders=(6,)) == sums((1, 2, 3))


def test_with_nodes_the_view_is_the_sum_over_the_set_that_they_were_asked_for() -> None:
    for asked in (ALL, (1, 2, 4)):
        seen = view(NODES)
        for silo in ALL:
            seen.ask_silo(silo, ALL)
        for node in NODES.roster.nodes:
            seen.ask_node(node, asked)
        assert seen.readable() == sums(asked)


def test_one_honest_node_is_enough() -> None:
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    seen.ask_node(5, (1, 2, 3))
    assert seen.readable(colluders=(6,)) == sums((1, 2, 3))
    assert seen.readable() == []


def test_nodes_asked_for_different_sets_show_nothing() -> None:
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    seen.ask_node(5, (1, 2, 3))
    seen.ask_node(6, (2, 3, 4))
    assert seen.readable() == []


def test_a_node_does_not_subtract_two_sets_for_anybody() -> None:
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    seen.ask_node(5, ALL)
    with refused("aggregator", "a mask is never used twice"):
        seen.ask_node(5, (1, 2, 3))
    assert seen.readable(colluders=(6,)) == sums(ALL)


def test_a_silo_called_both_missing_and_present_gains_nothing() -> None:
    """Silo 4 answered and is left out of the request, or did not answer and is in it."""
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    for node in NODES.roster.nodes:
        seen.ask_node(node, (1, 2, 3))
    assert seen.readable() == sums((1, 2, 3))

    seen = view(NODES)
    for silo in (1, 2, 3):
        seen.ask_silo(silo, ALL)
    for node in NODES.roster.nodes:
        seen.ask_node(node, ALL)
    assert seen.readable() == []
    assert seen.readable(colluders=(6,)) == []


def test_a_node_asked_in_another_attempt_than_the_silos_shows_nothing() -> None:
    seen = view(NODES)
    for silo in ALL:
        seen.ask_silo(silo, ALL)
    seen.ask_node(5, ALL, attempt=1)
    assert seen.readable(colluders=(6,)) == []


def test_a_silo_whose_nodes_all_collude_is_open() -> None:
    """P4's limit with subsets of nodes: the algebra must find it."""
    w = world(6, nodes=3, quorum=6, each=2)
    seen = view(w)
    for silo in w.roster.silos:
        seen.ask_silo(silo, list(w.roster.silos))
    assert sums((1,))[0] in seen.readable(colluders=(7, 8))


@pytest.mark.parametrize("dropouts", [0, 1, 2])
def test_subsets_of_nodes_leave_no_sum_smaller_than_one_nodes_silos(dropouts: int) -> None:
    """All nodes but one collude: what is readable of that node's m silos is a sum of m - D."""
    w = world(12, nodes=6, quorum=12 - dropouts, each=3)
    seen, silos, honest = view(w), list(w.roster.silos), w.roster.nodes[2]
    own = sorted(sessions_of(w)[honest].secrets)
    for silo in silos:
        seen.ask_silo(silo, silos)
    seen.ask_node(honest, sorted(set(silos) - set(own[:dropouts])))
    readable = seen.readable(colluders=set(w.roster.nodes) - {honest})
    alone = sums(*((silo,) for silo in silos if silo not in own))
    assert [group for group in readable if group not in alone] == sums(own[dropouts:])
    assert len(own) == 6


@pytest.mark.parametrize("seed", range(12))
def test_nodes_asked_for_different_sets_isolate_no_less(seed: int) -> None:
    """Any set for any node, half of the nodes colluding: never fewer than m - D silos."""
    draw, dropouts = random.Random(seed), 2
    w = world(12, nodes=6, quorum=12 - dropouts, each=3)
    silos, nodes = list(w.roster.silos), list(w.roster.nodes)
    bad = draw.sample(nodes, draw.choice([2, 4]))
    left_out = {node: draw.sample(silos, draw.randint(0, dropouts)) for node in nodes}
    seen = view(w)
    for silo in silos:
        seen.ask_silo(silo, silos)
    for node in nodes:
        same = left_out[node] if seed % 2 else left_out[nodes[0]]
        seen.ask_node(node, sorted(set(silos) - set(same)))
    protected = {f"{s}@1.0" for s in silos if set(sessions_of(w)[s].secrets) - set(bad)}
    for group in seen.readable(bad):
        assert not protected & set(group) or len(group) >= 6 - dropouts


# Sparse mask graphs -------------------------------------------------------------------------


def component(graph: dict[int, set[int]], start: int) -> frozenset[int]:
    """Everybody who is joined to `start`."""
    seen, ahead = {start}, [start]
    while ahead:
        ahead += (new := graph[ahead.pop()] - seen)
        seen |= new
    return frozenset(seen)


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_rank_is_survivors_minus_components(degree: int, seed: int) -> None:
    """The adversary is told everything about random silos; the rest is readable per component."""
    w = world(10, degree=degree, quorum=8)
    sessions, draw = sessions_of(w), random.Random(seed)
    silos = list(w.roster.silos)
    active: list[int] = []
    while not active or not all(set(sessions[i].secrets) & set(active) for i in active):
        active = sorted(draw.sample(silos, draw.randint(8, 10)))  # nobody answers without a mask
    colluders = draw.sample(active, draw.randint(0, 5))
    survivors = set(active) - set(colluders)
    joined = {i: set(sessions[i].secrets) & survivors for i in survivors}
    components = {component(joined, one) for one in survivors}
    seen = View(w, sessions)
    for silo in active:
        seen.ask_silo(silo, active)
    found = {frozenset(int(name.split("@")[0]) for name in one) for one in seen.readable(colluders)}
    assert found == components
    assert len(seen.readable(colluders)) == len(components)


@pytest.mark.parametrize("seed", range(8))
def test_telling_silos_different_active_sets_isolates_no_more_than_dropping_them(seed: int) -> None:
    """What is readable is closed: a group none of whose told neighbours is outside it."""
    w = world(10, degree=4, quorum=8)
    sessions, draw = sessions_of(w), random.Random(seed)
    silos, seen, told = list(w.roster.silos), View(w, sessions), {}
    choices = [silos, sorted(draw.sample(silos, 8)), sorted(draw.sample(silos, 9))]
    for silo in silos:
        told[silo] = draw.choice([one for one in choices if silo in one])
        seen.ask_silo(silo, told[silo])
    for group in seen.readable():
        members = {int(name.split("@")[0]) for name in group}
        for one in members:
            assert set(sessions[one].secrets) & set(told[one]) <= members


def test_a_silo_below_the_quorum_is_never_read() -> None:
    seen = view(PAIRWISE)
    with pytest.raises(ProtocolError, match="expected at least 3 active silos, got 1"):
        seen.ask_silo(1, (1,))
    assert seen.readable() == []
