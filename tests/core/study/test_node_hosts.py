"""Which silos run compute nodes: enough of them, each once, and no study id moves (P30)."""

from __future__ import annotations

from typing import Any

import pytest

from hubbub.core.errors import StudyError
from hubbub.core.study.study import Study


def study(**parties: Any) -> Study:
    names = ["ann", "bob", "cyn", "dan"]
    whole = {"names": names, "compute_nodes": 3, "colluders": 1, "dropouts": 1} | parties
    return Study.from_table(
        {
            "study": {"name": "who runs nodes"},
            "parties": whole,
            "data": {"source": "hubbub.datasets:heart", "records": 735},
            "statistics": {"ages": {"kind": "table", "columns": ["age"]}},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )


def test_hosts_are_part_of_the_study_id_where_they_are_named() -> None:
    named, another = (
        study(node_hosts=["ann", "bob", "cyn"]),
        study(node_hosts=["ann", "bob", "dan"]),
    )
    assert len({study().id, named.id, another.id}) == 3
    assert Study.parse(named.as_toml()).parties.node_hosts == ("ann", "bob", "cyn")


@pytest.mark.parametrize(
    ("parties", "says"),
    [
        ({"node_hosts": ["ann", "bob"], "compute_nodes": 2}, r"colluders \+ 2 = 3"),
        ({"node_hosts": ["ann", "bob"]}, "each of 3 compute nodes, got 2"),
        ({"node_hosts": ["ann", "ann", "bob"]}, "each once"),
        ({"node_hosts": ["ann", "bob", "eve"]}, "to name silos"),
    ],
)
def test_p30_fewer_hosts_than_leave_an_honest_one_are_refused(
    parties: dict[str, Any], says: str
) -> None:
    with pytest.raises(StudyError, match=says):
        study(**parties)
