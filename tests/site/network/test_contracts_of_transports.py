"""`hubbub.testing.check_transport`: a process, NATS and Flower keep it; broken ones are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hubbub.flower import GridPhase
from hubbub.site.network.envelope import Missing, Phase
from hubbub.testing import check_transport
from network.engine import in_process
from network.grid import MadeUpGrid, doors, install
from network.lines import NAMES, Relayed, come, relayed

PARTIES = [name for name in NAMES if name != "aggregator"]
# Seconds in which who answers at once has answered; on a machine that stands still, at last.
DEADLINES = (0.5, 5.0, 50.0)
TOO_SOON = "the others' answers come all the same"
Answers = Callable[[bytes], bytes]


@contextmanager
def alone(answers: Mapping[str, Answers]) -> Iterator[Phase]:
    yield in_process(answers.get)


def over_nats(relay: Relayed) -> Callable[[Mapping[str, Answers]], object]:
    @contextmanager
    def connect(answers: Mapping[str, Answers]) -> Iterator[Phase]:
        running = [relay.party(name, answer) for name, answer in answers.items()]
        try:
            with relay.carrier()[0] as carrier:
                come(carrier, *answers)
                yield carrier.phase
        finally:
            for party in running:
                party.stop()

    return connect


def held(connect: Any, parties: Sequence[str], told: str = "") -> None:
    """Hold a transport to its contract; with more time where that it was too little is not told."""
    for deadline in DEADLINES:
        try:
            check_transport(connect, parties, deadline=deadline)
        except AssertionError as error:
            if TOO_SOON not in str(error) or told == TOO_SOON or deadline == DEADLINES[-1]:
                raise
        else:
            return


def test_a_process_alone_keeps_the_contract() -> None:
    held(alone, PARTIES)


def test_nats_keeps_the_contract(tmp_path: Path) -> None:
    with relayed(tmp_path) as relay:
        held(over_nats(relay), PARTIES)


def test_a_grid_of_flowers_keeps_the_contract(gather: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own does in `tests/flower`."""
    install(monkeypatch)
    parties = gather()

    @contextmanager
    def connect(answers: Mapping[str, Answers]) -> Iterator[Phase]:
        with doors(parties, answers) as paths:
            phase = GridPhase(MadeUpGrid({**paths}), parties.aggregator.roster)
            list(phase("ping", {}, 60.0))
            yield phase

    held(connect, sorted(parties.seats))


def broken(change: Callable[[Phase], Phase]) -> Callable[[Mapping[str, Answers]], object]:
    @contextmanager
    def connect(answers: Mapping[str, Answers]) -> Iterator[Phase]:
        yield change(in_process(answers.get))

    return connect


def changing(phase: Phase) -> Phase:
    return lambda name, asked, end: (
        (who, said if isinstance(said, Missing) else said[:65_536])
        for who, said in phase(name, asked, end)
    )


def crossing(phase: Phase) -> Phase:
    def crossed(name: str, asked: Mapping[str, bytes], end: float) -> Iterator[tuple[str, object]]:
        names = list(asked)
        turned = dict(zip(names, [*names[1:], names[0]], strict=True))
        yield from phase(name, {turned[who]: blob for who, blob in asked.items()}, end)

    return crossed


def silent(phase: Phase) -> Phase:
    return lambda name, asked, end: (
        pair for pair in phase(name, asked, end) if not isinstance(pair[1], Missing)
    )


def hasty(phase: Phase) -> Phase:
    """Whom nobody waits for: as soon as one is missing, all are."""

    def given_up(name: str, asked: Mapping[str, bytes], end: float) -> Iterator[tuple[str, object]]:
        said = dict(phase(name, asked, end))
        lost = any(isinstance(each, Missing) for each in said.values())
        yield from ((who, Missing() if lost else each) for who, each in said.items())

    return given_up


def twice(phase: Phase) -> Phase:
    return lambda name, asked, end: (
        pair for each in phase(name, asked, end) for pair in (each, each)
    )


def late(phase: Phase) -> Phase:
    """Gives what was asked before to whoever asks next."""
    before: dict[str, bytes] = {}

    def mixed(name: str, asked: Mapping[str, bytes], end: float) -> Iterator[tuple[str, object]]:
        earlier = dict(before)
        before.update(asked)
        for who, said in phase(name, asked, end):
            yield who, earlier[who] if asked[who] == b"second" else said

    return mixed


@pytest.mark.parametrize(
    ("connect", "told"),
    [
        (broken(changing), "to 65537 bytes comes back .* as it was"),
        (broken(crossing), "each party is handed its own 1 bytes"),
        (broken(silent), "one answer, or is Missing once"),
        (broken(twice), "one answer, or is Missing once"),
        (broken(hasty), TOO_SOON),
        (broken(late), "none in a later phase, found the late one"),
    ],
    ids=["cut", "crossed", "silent", "twice", "hasty", "late"],
)
def test_a_broken_transport_is_told(connect: Callable[..., object], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        held(connect, PARTIES, told)
