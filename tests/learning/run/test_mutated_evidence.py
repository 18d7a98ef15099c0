"""Whatever an aggregator makes of an evidence file: nothing untrue in it is called re-derived."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.estimation.asking.made_up import KINDS, write_silos
from tests.estimation.asking.made_up import study as asking
from tests.site.attestation.parties import role_of, study_of

import hubbub
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.runs import local_backend
from hubbub.learning.runs.run_study import resume
from network.consortium import HOSPITALS, Consortium, table
from network.test_attested import attested
from network.test_patients import gathered as patients
from run.finished import a_study
from run.mutations import content_of, mutated
from run.test_correlated_runs import NOISE
from run.test_verify import CLIP, NO_NODES
from run.true_claims import TrueFile, falsely_confirmed, is_true

EVALUATED = (CLIP, f"{CLIP}evaluate = {{ every = 2, epsilon = 0.1 }}\n")
NODES = (NO_NODES, 'shares = "full"\ncompute_nodes = 2 ')
ALL = {"aggregator": role_of(), "silo": role_of()}


def in_process(kind: str, home: Path, study: hubbub.Study, stops: bool = False) -> TrueFile:
    """A run in one process, whose keys are made for it."""
    seen: list[Any] = []
    real = local_backend.federate

    def spied(*given: Any, **named: Any) -> Any:
        seen.append(real(*given, **named))
        return seen[-1]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_backend, "federate", spied)
        if stops:
            with pytest.raises(KeyboardInterrupt):
                hubbub.run(study, home / "run", progress=stop)
            resume(home / "run")
        else:
            hubbub.run(study, home / "run")
    return TrueFile(kind=kind, content=content_of(home / "run"), keys=tuple(seen[-1].keys))


def apart(kind: str, parties: Consortium) -> TrueFile:
    """A run among machines, whose roster the study names."""
    parties.serve()
    for name in list(parties.seats):
        parties.stop(name)
    content = content_of(parties.home / "run")
    keys = tuple(parties.sites[one["name"]].keys for one in content["roster"])
    return TrueFile(kind=kind, content=content, keys=keys)


def asked(home: Path) -> TrueFile:
    write_silos(home)
    return in_process("statistics", home, asking(home, q=KINDS["table"]))


MADE: dict[str, Callable[[Path], TrueFile]] = {
    "statistics": asked,
    "attested": lambda home: apart("attested", attested(home, 2, ("aggregator", "node", "silo"))),
    "resumed": lambda home: in_process(
        "resumed", home, study_of(ALL, silos=HOSPITALS[:3]), stops=True
    ),
    "full shares": lambda home: in_process(
        "full shares", home, a_study(steps=4, changes=(EVALUATED, NODES))
    ),
    "correlated": lambda home: in_process("correlated", home, a_study(steps=4, changes=NOISE)),
    "patients": lambda home: apart("patients", patients(home)),
    "another": lambda home: apart("another", Consortium.gather(home, table(HOSPITALS[1:]))),
}
KINDS_OF_RUNS = [kind for kind in MADE if kind != "another"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TrueFile]:
    """The evidence of a run of a kind, made once."""
    return cache(lambda kind: MADE[kind](tmp_path_factory.mktemp("made")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_OF_RUNS)
def test_every_claim_about_a_true_file_that_is_re_derived_is_true(
    files: Callable[[str], TrueFile], kind: str, tmp_path: Path
) -> None:
    true = files(kind)
    found = true.found(true.content, tmp_path / "true.json")
    assert [one for one in found if not one.holds] == []
    assert falsely_confirmed(true, true.content, found) == []
    derived = [one.claim for one in found if one.verdict == "re-derived"]
    assert any("no silo has charged more" in claim for claim in derived)
    assert any("in every session" in claim for claim in derived) == (kind == "attested")
    assert any(claim.startswith("in the session") for claim in derived) == (
        kind in ("attested", "resumed")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count", "others"),
    [("attested", 30, ["another"]), *((kind, 500, list(MADE)) for kind in KINDS_OF_RUNS)],
)
def test_no_mutation_of_an_evidence_file_has_something_untrue_confirmed(
    files: Callable[[str], TrueFile], kind: str, count: int, others: list[str], tmp_path: Path
) -> None:
    """Most are found wrong; in those that are not, what is re-derived is true nevertheless."""
    true, chance, seen = files(kind), random.Random(f"{kind} {count}"), Counter[str]()
    strangers = [files(one) for one in others if one != kind]
    for _ in range(count):
        done, content = mutated(true, strangers, chance)
        found = true.found(content, tmp_path / "lie.json")
        assert falsely_confirmed(true, content, found) == [], done
        seen[
            "refused" if not found else "wrong" if any(not f.holds for f in found) else "held"
        ] += 1
    assert count / 4 < seen["wrong"]
    assert count / 100 < seen["held"] < count / 2, seen


def test_the_oracle_knows_a_lie(files: Callable[[str], TrueFile]) -> None:
    """A claim is false that the run contradicts, or that nobody has said how to judge."""
    true = files("attested")
    fewer = deepcopy(true.content)
    fewer["epsilon"]["attempts"] = 1
    said = "after 1 attempt charged, it is at most 0.1; no silo has charged more than 1, "
    assert not is_true(true, fewer, f"{said}as all silos signed with the roster's keys")
    unshown = deepcopy(true.content) | {"attested": []}
    assert not is_true(true, unshown, "parties showed evidence in every session with an attempt")
    assert is_true(true, true.content, "parties showed evidence in every session with an attempt")
    assert not is_true(true, true.content, "the earth is flat")


@pytest.mark.quick_cases("attested", "another")
@pytest.mark.parametrize("kind", MADE)
def test_keys_are_where_the_roster_has_them(files: Callable[[str], TrueFile], kind: str) -> None:
    true = files(kind)
    names = [one.identity.name for one in true.keys if isinstance(one, Keys)]
    assert names == [one["name"] for one in true.content["roster"]]
