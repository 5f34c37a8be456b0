"""Maximum spanning forests."""

import numpy as np

from arf_dask.stats.spanning_tree import Link, spanning_forest


def weights(n: int, edges: dict[tuple[int, int], float]) -> np.ndarray:
    found = np.zeros((n, n))
    for (a, b), weight in edges.items():
        found[a, b] = found[b, a] = weight
    return found


def test_the_lightest_edge_of_a_cycle_is_left_out() -> None:
    links = spanning_forest(weights(4, {(0, 1): 4, (1, 2): 3, (2, 3): 2, (3, 0): 1}))
    assert {frozenset((link.parent, link.child)) for link in links} == {frozenset(p) for p in ((0, 1), (1, 2), (2, 3))}
    assert sum(link.weight for link in links) == 9


def test_nothing_is_joined_by_nothing() -> None:
    links = spanning_forest(weights(5, {(0, 1): 1.0, (2, 3): -5.0, (3, 4): 2.0}))
    assert links == [Link(3, 4, 2.0), Link(0, 1, 1.0)]
    assert spanning_forest(np.zeros((3, 3))) == []
    assert spanning_forest(np.zeros((1, 1))) == []


def test_parents_come_before_their_children() -> None:
    rng = np.random.default_rng(0)
    some = rng.random((20, 20))
    links = spanning_forest(some + some.T)
    known = {links[0].parent}
    for link in links:
        assert link.parent in known
        assert link.child not in known
        known.add(link.child)
    assert known == set(range(20))
