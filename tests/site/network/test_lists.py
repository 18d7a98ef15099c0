"""Joint batches among machines: who is in them, what they cost, and every cheat at their lists.

Three silos with 5, 6 and 4 records; a batch of 4 of the 15, so that an epoch is three batches of 4
and one of 3. Lists come from the whole mixnet. A spy stands where a silo takes a list and where it
looks up which of its own records were drawn.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from hubbub import learning
from hubbub.core.errors import ProtocolError
from hubbub.core.planning import exposure
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.protocol.token_lists import onion_layers
from hubbub.core.protocol.token_lists.joint_batch import TokenBatches
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.onion_layers import Done, Job, Wrap
from hubbub.core.protocol.token_lists.token_list import Publication, commitment, repeated
from hubbub.core.runs.loop import Parameters, Summed, train
from hubbub.core.session import token_lists
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import RefusedError, round_parameters_of
from hubbub.core.session.setup import SetUp
from hubbub.core.session.token_lists import SiloTokenLists
from hubbub.core.study.parties import Parties
from hubbub.core.study.silo_records import named_object
from hubbub.core.tabular.records import Records
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.runs.preparing import prepare
from hubbub.site.network.envelope import answer, read_answer, request
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import WaitedError
from network.lines import over_nats
from network.relay import (
    FEATURES,
    HASTY,
    NAMES,
    Jumping,
    Relay,
    Session,
    Watched,
    at,
    flipped,
    on_asked,
    on_parts,
    open_frame,
    opened,
    refusal,
    tiny,
)
from network.test_failures import Failing
from network.test_same_bits import named, source, together
from sampling.silos import payload_of, pieces

COUNTS, BATCH, STEPS = {"ann": 5, "bob": 6, "cyn": 4}, 4, 6
ALL, EPOCH = sum(COUNTS.values()), 4
ROWS = {"per-step": 6, "per-epoch": 2, "static": 2}
MADE = {"per-step": 6, "per-epoch": 2, "static": 1}
every_kind = pytest.mark.parametrize("tokens", ROWS)
NEW = bytes(range(16, 32))


def records(party: str) -> Records:
    """Records of a silo, or of the public test, no two alike."""
    drawn = np.random.default_rng(ord(party[0]))
    inputs = drawn.normal(size=(COUNTS.get(party, 20), FEATURES)).astype(np.float32)
    return Records(inputs=inputs, targets=(inputs[:, 0] > 0).astype(np.float32))


def joint(tokens: str = "per-step", nodes: int = 0, **changes: Any) -> dict[str, Any]:
    """A study with joint batches."""
    made = tiny(nodes)
    made["data"] |= {
        "source": "python:network.test_lists:records",
        "records": ALL,
        "counts": list(COUNTS.values()),
    }
    made["training"] = {
        "steps": STEPS,
        "sampling": "without-replacement",
        "batch": BATCH,
        "tokens": tokens,
    }
    made["privacy"] |= {"relation": "substitute"}
    for section, keys in changes.items():
        made[section] |= keys
    return made


def stated_alone(parties: Parties) -> list[int]:
    return [parties.colluders]


@pytest.fixture(autouse=True)
def cheap_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """One adversary is enough."""
    monkeypatch.setattr(exposure, "_curve", stated_alone)


@dataclass
class Ward(Watched):
    """A watched consortium in which a row may pay for the attempts of an epoch."""

    def _paid(self, name: str, endpoint: SiloEndpoint) -> set[tuple[bytes, int, int]]:
        epoch = main_of(self.study).mechanism.epoch
        rows = super()._paid(name, endpoint)
        return {(one, number + k, 0) for one, number, _ in rows for k in range(epoch)}


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[Any]:
    """A watched consortium; whatever is done to it, the laws hold."""
    made: list[Ward] = []

    def new(tokens: str = "per-step", nodes: int = 0, draws: Any = None, **changes: Any) -> Ward:
        home = tmp_path / f"{len(made)}"
        made.append(Ward.gather(home, joint(tokens, nodes, **changes), draws))
        return made[-1]

    yield new
    assert [one.broken for one in made if one.broken] == []


@dataclass
class Drawn:
    """What silos did with lists: session and round first, then the silo."""

    batches: dict[tuple[bytes, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    taken: dict[tuple[bytes, int], dict[int, np.ndarray]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def members(self) -> list[list[tuple[int, int]]]:
        """The (silo, record) pairs of every batch, in order."""
        return [
            [(silo, record) for silo, those in sorted(batch.items()) for record in those]
            for batch in self.batches.values()
        ]

    def orders(self) -> list[tuple[int, ...]]:
        """Every list: the places of all records, silo by silo."""
        return [
            tuple(np.concatenate([each for _, each in sorted(one.items())]).tolist())
            for one in self.taken.values()
        ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    found, chosen, take = Drawn(), TokenBatches.rows, TokenBatches.take_list
    owners: dict[TokenBatches, SiloTokenLists] = {}
    prepare = SiloTokenLists.prepare

    def choosing(self: TokenBatches, source: Any, records: int, *now: Any) -> np.ndarray:
        mine, lists = chosen(self, source, records, *now), owners.get(self)
        if lists is not None:
            batch = found.batches[lists.list_context.session, now[0].round]
            batch[lists.index] = sorted(mine[mine >= 0].tolist())
        return mine

    def preparing(self: SiloTokenLists, model: bytes, *, is_open: bool) -> None:
        owners[self.batches] = self
        prepare(self, model, is_open=is_open)

    def taking(self: TokenBatches, positions: np.ndarray, first: int) -> None:
        if (lists := owners.get(self)) is not None:
            found.taken[lists.list_context.session, first][lists.index] = positions
        take(self, positions, first)

    monkeypatch.setattr(TokenBatches, "rows", choosing)
    monkeypatch.setattr(TokenBatches, "take_list", taking)
    monkeypatch.setattr(SiloTokenLists, "prepare", preparing)
    return found


def wrong(parties: Ward) -> list[str]:
    """What `hubbub verify` finds fault with."""
    return [str(one) for one in verify(parties.home / "run") if not one.holds]


# Runs ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_list_for_every_step_comes_over_a_real_relay_too(
    gather: Any, drawn: Drawn, tmp_path: Path
) -> None:
    """Requests for one list and the next look alike there; each is answered for itself."""
    pytest.importorskip("nats", reason="needs the extra net")
    parties = gather("per-step", 0)
    folder = tmp_path / "relay"
    folder.mkdir()
    with over_nats(folder, parties) as (carrier, _):
        result = parties.serve(carrier.phase, timeouts=HASTY)
    assert wrong(parties) == []
    assert result.final["step"] == STEPS
    assert len(set(drawn.orders())) == MADE["per-step"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "nodes"), [("per-step", 0), ("per-epoch", 0), ("static", 0), ("static", 2)]
)
def test_a_study_with_joint_batches_is_trained_apart(
    gather: Any, drawn: Drawn, tokens: str, nodes: int
) -> None:
    parties = gather(tokens, nodes)
    result = parties.serve(timeouts=HASTY)
    assert wrong(parties) == []
    assert result.final["step"] == STEPS
    assert {len(parties.rows(name)) for name in NAMES} == {ROWS[tokens]}
    assert result.epsilon == result.plan.epsilon()
    assert len(drawn.taken) == MADE[tokens]
    for order in drawn.orders():
        assert sorted(order) == list(range(ALL))
    assert len(set(drawn.orders())) == MADE[tokens]  # alike once in 10^12
    sizes = [len(batch) for batch in drawn.members()]
    assert sizes == ([BATCH] * STEPS if tokens == "per-step" else [4, 4, 4, 3, 4, 4])


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["per-epoch", "static"])
def test_every_record_is_used_once_in_an_epoch(gather: Any, drawn: Drawn, tokens: str) -> None:
    gather(tokens).serve(timeouts=HASTY)
    batches = drawn.members()
    epoch = Counter(record for batch in batches[:EPOCH] for record in batch)
    rest = Counter(record for batch in batches[EPOCH:] for record in batch)
    assert set(epoch.values()) == set(rest.values()) == {1}
    assert len(epoch) == ALL


@dataclass
class GivenLists:
    """Such places for one silo."""

    batches: TokenBatches
    is_paid: bool = False

    def prepare(self, model: bytes, *, is_open: bool) -> None:
        """They are there."""

    def use(self, round: int) -> None:
        """Nobody pays."""


@dataclass
class Given:
    """Hands every silo its places when a list is due, in the place of the mixnet."""

    places: Mapping[int, Mapping[int, np.ndarray]] = field(default_factory=dict)
    round: int = 0
    silos: dict[int, GivenLists] = field(default_factory=dict)

    def at_silo(self, keys: Any, index: int, channel: Any, numbers: RoundParameters) -> GivenLists:
        self.silos[index] = GivenLists(TokenBatches(numbers))
        return self.silos[index]

    def at_aggregator(self, peers: Any, channel: Any) -> Any:
        return self

    def prepare(self) -> None:
        self.round += 1
        for index, places in self.places.get(self.round, {}).items():
            self.silos[index].batches.take_list(places, self.round)


@pytest.mark.slow
@every_kind
def test_with_the_same_places_the_model_has_the_same_bits_as_in_one_process(
    gather: Any, drawn: Drawn, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens are fresh on either side, so the places of the one are given to the other."""
    parties = gather(tokens, draws=source)
    whole = prepare(parties.study)
    given = Given()
    reference = together(parties, whole, cast("Any", given))
    monkeypatch.setattr(SetUp, "__init__", named(reference.rounds.session))
    there = learning.parameters_vector(parties.serve(timeouts=HASTY).model)
    given.places = {first: dict(silos) for (_, first), silos in drawn.taken.items()}
    round_parameters = round_parameters_of(whole.plan.main)

    def summation(step: int, parameters: Parameters, _left: int) -> Summed:
        total, made = reference.rounds.round(step, parameters)
        assert total is not None
        return Summed(gradient=decoded(round_parameters, total), attempts=made)

    here = train(whole, summation, lambda *_: None, divisor=whole.plan.mechanism.divisor)
    assert here.parameters.tobytes() == there.tobytes()
    assert (here.parameters != whole.initial).all()


# Sessions that are lost ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["list", "wrap", "show", "look", "mix", "take"])
def test_who_restarts_while_a_list_is_made_is_in_the_next(
    gather: Any, call: str, when: str
) -> None:
    parties = gather("static", training={"steps": 2})
    failing = Failing(parties, "bob", call, when, parties.start)
    result = parties.serve(failing, timeouts=HASTY)
    assert failing.failed
    assert result.final["step"] == 2
    assert {len(parties.rows(name)) for name in NAMES} == {1}
    assert wrong(parties) == []


@pytest.mark.slow
def test_a_second_list_that_fails_costs_no_attempt(gather: Any, drawn: Drawn) -> None:
    parties = gather("per-step")
    result = parties.serve(
        Failing(parties, "bob", "mix", "after", parties.start, number=2), timeouts=HASTY
    )
    assert result.final["step"] == STEPS
    assert len({session for session, _ in drawn.taken}) == 2
    assert {len(parties.rows(name)) for name in NAMES} == {STEPS}
    assert wrong(parties) == []


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["per-epoch", "static"])
def test_a_list_that_is_lost_is_charged_to_the_end_of_its_epoch(
    gather: Any, drawn: Drawn, tokens: str
) -> None:
    """The third attempt fails: the next session has a new list, and an epoch of its own."""
    parties = gather(tokens)
    failing = Failing(parties, "bob", "seed", "before", parties.start, number=3)
    result = parties.serve(failing, timeouts=HASTY)
    assert (
        result.final["step"] == 4
    )  # two, and two of the six that were left after an epoch of four
    assert len(drawn.taken) == 2
    assert {len(parties.rows(name)) for name in NAMES} == {ROWS[tokens]}
    assert result.epsilon == result.plan.epsilon()
    assert wrong(parties) == []


@pytest.mark.slow
@every_kind
def test_serve_goes_on_with_a_new_list_after_the_aggregators_end(
    gather: Any, drawn: Drawn, tokens: str
) -> None:
    parties = gather(tokens)

    def stop(step: int, _row: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parties.serve(progress=stop, timeouts=HASTY)
    before = len(drawn.taken)
    result = parties.serve(timeouts=HASTY)
    assert result.final["step"] == (STEPS if tokens == "per-step" else 4)
    assert len(drawn.taken) > before
    assert {len(parties.rows(name)) for name in NAMES} == {ROWS[tokens]}
    assert wrong(parties) == []


@pytest.mark.slow
def test_a_silo_that_is_never_there_for_a_list_ends_the_run(gather: Any) -> None:
    parties = gather("static")
    relay = Relay(parties.phase, tells=at("mix", lambda _: None, "bob"))
    with pytest.raises(WaitedError, match=r"none from bob: .* 16 sessions in a row"):
        parties.serve(relay, timeouts=replace(HASTY, clock=Jumping()))
    assert {len(parties.rows(name)) for name in NAMES} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["list", "wrap", "show", "look", "mix"])
def test_what_is_garbled_on_the_way_costs_the_session_and_blames_nobody(
    gather: Any, call: str
) -> None:
    parties = gather("static", training={"steps": 1})
    relay = Relay(parties.phase, tells=at(call, flipped, "bob", times=1))
    result = parties.serve(relay, timeouts=HASTY)
    assert result.final["step"] == 1
    assert any("from bob, an unusable message" in line for line in parties.said)
    assert {len(parties.rows(name)) for name in NAMES} == {1}


@pytest.mark.slow
def test_a_phase_has_as_long_as_its_work_takes(gather: Any) -> None:
    parties, given = gather("static", training={"steps": 1}), defaultdict[str, list[float]](list)

    def timed(name: str, asked: Any, deadline: float) -> Iterator[Any]:
        given[name].append(deadline - HASTY.deadline)
        return parties.phase(name, asked, deadline)

    parties.serve(timed, timeouts=HASTY)
    assert given["model"] == [0.0]
    assert min(given["wrap"]) > 5e-4 * max(COUNTS.values()) * len(COUNTS)
    assert min(given["mix"]) > 5e-4 * ALL
    assert min(given["look"]) > 1e-6 * 32 * ALL * len(COUNTS)


# Cheats ----------------------------------------------------------------------------------------


class Dropping(Mixer):
    """Puts a token of its own making in the place of one of another silo."""

    def mix(self, forms: Sequence[bytes], *executor: Any) -> Publication:
        made = super().mix(forms, *executor)
        size = onion_layers.form_bytes(len(self._counts) - self._step)
        own = set(pieces(self._own[self._step].tobytes(), onion_layers.NAME_BYTES))
        there = pieces(payload_of(made.names), onion_layers.NAME_BYTES)
        gone = next(k for k, name in enumerate(there) if name not in own)
        left = pieces(payload_of(made.forms), size)
        left[gone] = os.urandom(size)
        whole = b"".join(left)
        names = onion_layers.names_in(onion_layers.named(self._places[self._step], whole, size))
        return self._publication(names, whole, size, self._step)


class Changing(Mixer):
    """Shows other tokens than it committed to."""

    def submit(self, commits: Sequence[bytes]) -> Publication:
        super().submit(commits)
        size = onion_layers.form_bytes(len(self._counts))
        whole = os.urandom(size * self._counts[self._index])
        names = onion_layers.names_in(onion_layers.named(self._places[0], whole, size))
        return self._publication(names, whole, size, repeats=repeated(self._commits))


class Misnaming(Mixer):
    """Publishes other forms than it names."""

    def mix(self, forms: Sequence[bytes], *executor: Any) -> Publication:
        made = super().mix(forms, *executor)
        junk = os.urandom(len(payload_of(made.forms)))
        return replace(made, forms=self._frame(Tag.MIX_FORMS, junk, self._step))


class Ordering(Mixer):
    """Leaves two tokens in each other's place."""

    def mix(self, forms: Sequence[bytes], *executor: Any) -> Publication:
        made = super().mix(forms, *executor)
        first, second, *rest = pieces(payload_of(made.names), onion_layers.NAME_BYTES)
        names = b"".join((second, first, *rest))
        return replace(made, names=self._frame(Tag.MIX_NAMES, names, self._step))


class Closed(Mixer):
    """Wraps tokens that the third silo cannot open."""

    def commit(self, keys: Sequence[bytes], *_: Any) -> bytes:
        other = onion_layers.public_of(onion_layers.fresh_private())

        def executor(jobs: Iterable[Job]) -> Iterator[Done]:
            for job in jobs:
                assert isinstance(job, Wrap)
                yield replace(job, publics=(*job.publics[:2], other)).done()

        return super().commit(keys, executor)


class Short(Mixer):
    """Has fewer tokens than it has records."""

    def submit(self, commits: Sequence[bytes]) -> Publication:
        made = super().submit(commits)
        names = payload_of(made.names)[: -onion_layers.NAME_BYTES]
        return replace(made, names=self._frame(Tag.MIX_NAMES, names))


class Complaining(Mixer):
    """Complains about a list that is as it should be."""

    def look(self, names: Sequence[bytes]) -> bytes:
        return self.complain() if self._step == 3 else super().look(names)


class Weak(Mixer):
    """Shows a key to which nothing can be sealed."""

    def key(self) -> bytes:
        super().key()
        return self._frame(Tag.MIX_KEY, bytes(32))


CHEATS: dict[str, tuple[type[Mixer], str]] = {
    "drops a token": (Dropping, "its list is not what its key makes of the one before"),
    "changes its tokens": (Changing, "expected the tokens that it committed to, got others"),
    "misnames forms": (Misnaming, "expected the forms that it named, got others"),
    "does not shuffle": (Ordering, "forms in the order of their names, none twice, got others"),
    "cannot be opened": (Closed, "its token does not open at layer 3"),
    "has fewer tokens": (Short, "expected a MIX_NAMES of 747 bytes, got 715"),
    "complains": (Complaining, "it complained about a list that is as it should be"),
    "shows a weak key": (Weak, "expected a key that can be sealed to, got another"),
}


def cheating(monkeypatch: pytest.MonkeyPatch, cheat: type[Mixer]) -> None:
    """The second silo has a mixer of its own making."""

    def made(**given: Any) -> Mixer:
        return (cheat if given["index"] == 2 else Mixer)(**given)

    monkeypatch.setattr(token_lists, "Mixer", made)


@pytest.mark.slow
@pytest.mark.parametrize(("cheat", "says"), CHEATS.values(), ids=CHEATS)
def test_a_cheat_stops_the_run_by_name(
    gather: Any, cheat: type[Mixer], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheating(monkeypatch, cheat)
    parties = gather("static")
    with pytest.raises(ProtocolError, match=says) as caught:
        parties.serve(timeouts=HASTY)
    assert caught.value.culprit == "bob"
    assert {len(parties.rows(name)) for name in NAMES} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("cheat", [Dropping, Closed, Complaining])
def test_where_a_list_is_opened_every_silo_finds_the_culprit_for_itself(
    gather: Any, cheat: type[Mixer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cheating(monkeypatch, cheat)
    parties = gather("static")
    with pytest.raises(ProtocolError):
        parties.serve(timeouts=HASTY)
    found = [line for line in parties.said if "bob: expected a list that everybody made" in line]
    assert len(found) == len(NAMES)
    assert any("complains about the list" in line for line in parties.said)


class Again(Mixer):
    """Commits once more to what it has seen since."""

    def commit_to(self, forms: bytes) -> tuple[bytes, Publication]:
        """A second commitment, and what fits it: own forms but one, which is another silo's."""
        size = onion_layers.form_bytes(len(self._counts))
        whole = forms[:size] + self._forms[size:]
        names = onion_layers.names_in(onion_layers.named(self._places[0], whole, size))
        hidden = commitment(self._places[0], self._index, np.sort(names).tobytes())
        commit = self._frame(Tag.MIX_COMMIT, hidden + repeated(self._key_posts))
        return commit, self._publication(names, whole, size, repeats=repeated(self._commits))


@pytest.mark.slow
def test_who_copies_a_form_between_two_commitments_is_named_alone(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the relay: ann shows her forms after one commitment of bob's, the rest see another."""
    cheating(monkeypatch, Again)
    parties = gather("static")
    shown: dict[str, bytes] = {}

    def framed(name: str, asked: Any, deadline: float) -> Iterator[Any]:
        if name == "show":
            yield from shown.items()
            yield from parties.phase(name, {"cyn": asked["cyn"]}, deadline)
            return
        heard = dict(parties.phase(name, asked, deadline))
        if name == "wrap":
            (state,) = parties.seats["bob"]._sessions.values()
            session = state.session
            commits = [read_answer(blob)[0] for _, blob in sorted(heard.items())]
            shown["ann"] = parties.seats["ann"].answer(request(Call.SHOW, session, commits))
            bob = state.party._lists._mixer
            bob.submit(commits)
            again, made = bob.commit_to(payload_of(read_answer(shown["ann"])[1]))
            shown["bob"] = answer([made.names, made.forms])
            heard["bob"] = answer([again])
        yield from heard.items()

    with pytest.raises(ProtocolError, match="two different things that it signed") as caught:
        parties.serve(framed, timeouts=HASTY)
    assert caught.value.culprit == "bob"


@pytest.mark.slow
def test_a_complaint_before_anything_was_shown_names_who_complains(gather: Any) -> None:
    parties = gather("static")

    def early(parts: list[bytes]) -> list[bytes]:
        where = unverified(parts[0])
        return [sealed_as(parties, "bob", where, Tag.MIX_COMPLAINT, b"")]

    relay = Relay(parties.phase, tells=at("wrap", on_parts(early), "bob"))
    with pytest.raises(ProtocolError, match="a list that was shown, got one before") as caught:
        parties.serve(relay, timeouts=HASTY)
    assert caught.value.culprit == "bob"


def sealed_as(parties: Ward, party: str, where: Frame, tag: Tag, payload: bytes) -> bytes:
    """A frame in the place of another, with a party's own signature."""
    return parties.sealed(
        party,
        tag,
        payload,
        session=where.session,
        round=where.round,
        attempt=where.attempt,
        receiver=EVERYBODY,
    )


@pytest.mark.slow
def test_a_silo_that_keeps_its_key_from_an_opening_is_named_as_missing(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheating(monkeypatch, Dropping)
    parties = gather("static")
    relay = Relay(parties.phase, tells=at("give_up", lambda _: None, "bob"))
    with pytest.raises(WaitedError, match=r"none from bob: .* 16 sessions in a row"):
        parties.serve(relay, timeouts=replace(HASTY, clock=Jumping()))
    assert {len(parties.rows(name)) for name in NAMES} == {0}


@pytest.mark.slow
def test_a_complaint_about_a_list_in_force_is_no_answer(gather: Any) -> None:
    """The others keep their keys: who complains is missing, not they."""
    parties = gather("static", training={"steps": 1})

    def complaint(_blob: object) -> bytes:
        (session,) = {one.session for one in parties.seats["cyn"]._sessions.values()}
        where = {"session": session, "round": 1, "attempt": 3, "receiver": EVERYBODY}
        return answer([parties.sealed("cyn", Tag.MIX_COMPLAINT, **where)])

    relay = Relay(parties.phase, tells=at("take", complaint, "cyn"))
    with pytest.raises(WaitedError, match=r"got none from cyn: expected its part of") as waited:
        parties.serve(relay, timeouts=replace(HASTY, clock=Jumping()))
    assert "ann" not in str(waited.value)
    assert relay.asked("give_up", "ann") == []


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"receiver": 0}, {"payload": bytes(31)}])
def test_a_link_that_is_not_for_everybody_names_who_signed_it(
    gather: Any, wrong: dict[str, Any]
) -> None:
    parties = gather("per-step", training={"steps": 2})

    def other(parts: list[bytes]) -> list[bytes]:
        was = unverified(parts[0])
        where = {"session": was.session, "round": was.round, "attempt": was.attempt}
        said = {"receiver": EVERYBODY, "payload": bytes(was.payload), **wrong}
        return [parties.sealed("cyn", Tag.SEED_LINK, **said, **where)]

    relay = Relay(parties.phase, tells=at("model", on_parts(other), "cyn"))
    with pytest.raises(ProtocolError, match="expected a link of 32 bytes to everybody") as caught:
        parties.serve(relay, timeouts=HASTY)
    assert caught.value.culprit == "cyn"
    # It stops as soon as the lie is seen: who is slower may not have been asked by then.
    assert len(parties.rows("cyn")) == 1
    assert {len(parties.rows(name)) for name in NAMES} <= {0, 1}


@pytest.mark.slow
def test_a_complaint_in_answer_to_a_complaint_is_no_key(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheating(monkeypatch, Complaining)
    parties = gather("static")

    def again(parts: list[bytes]) -> list[bytes]:
        return [sealed_as(parties, "bob", unverified(parts[0]), Tag.MIX_COMPLAINT, b"")]

    relay = Relay(parties.phase, tells=at("give_up", on_parts(again), "bob"))
    with pytest.raises(WaitedError, match="bob: expected its part of GIVE_UP, got other frames"):
        parties.serve(relay, timeouts=replace(HASTY, clock=Jumping()))


def another(parties: Ward) -> Callable[[list[bytes]], list[bytes]]:
    """Bob's list with another token of its own, as it may sign it for one silo alone."""

    def changed(parts: list[bytes]) -> list[bytes]:
        names = next(one for one in parts if unverified(one).tag is Tag.MIX_NAMES)
        where = unverified(names)
        if where.attempt != 2:
            return parts
        mixer = parties.party("bob", where.session)._lists._mixer
        own = mixer._own[2].tobytes()[: onion_layers.NAME_BYTES]
        kept = [one for one in pieces(payload_of(names), onion_layers.NAME_BYTES) if one != own]
        other = b"".join(sorted([*kept, os.urandom(onion_layers.NAME_BYTES)]))
        made = sealed_as(parties, "bob", where, Tag.MIX_NAMES, other)
        return [made if one == names else one for one in parts]

    return changed


def test_two_lists_shown_to_two_silos_name_who_signed_both(gather: Any) -> None:
    parties = gather("static")
    relay = Relay(parties.phase, asks=at("look", on_asked(another(parties)), "cyn"))
    with pytest.raises(
        ProtocolError, match=r"two different things .* showed cyn another"
    ) as caught:
        parties.serve(relay, timeouts=HASTY)
    assert caught.value.culprit == "bob"


def test_who_misses_its_token_in_a_list_that_was_shown_to_it_alone_is_not_blamed(
    gather: Any,
) -> None:
    """Bob and the relay show cyn a list without its token, and everybody else a good one."""
    parties = gather("static")

    def without(parts: list[bytes]) -> list[bytes]:
        names = next(one for one in parts if unverified(one).tag is Tag.MIX_NAMES)
        where = unverified(names)
        if where.attempt != 2:
            return parts
        junk = b"".join(sorted(os.urandom(onion_layers.NAME_BYTES) for _ in range(ALL)))
        made = sealed_as(parties, "bob", where, Tag.MIX_NAMES, junk)
        return [made if one == names else one for one in parts]

    relay = Relay(parties.phase, asks=at("look", on_asked(without), "cyn"))
    with pytest.raises(
        ProtocolError, match=r"two different things .* showed cyn another"
    ) as caught:
        parties.serve(relay, timeouts=HASTY)
    assert caught.value.culprit == "bob"


# A silo and an aggregator that asks as it likes -------------------------------------------------


@dataclass
class Hand:
    """An aggregator that plays the phases of a list by hand; `changed` alters what a silo is told.

    Args:
        parties: everybody.
        session: an open one.
        changed: from the call, the silo and the parts to what it is asked with.
    """

    parties: Ward
    session: Session
    changed: Callable[[Call, str, list[bytes]], list[bytes]] = lambda _call, _name, parts: parts
    tape: dict[Call, list[tuple[str, list[bytes]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def ask(self, call: Call, name: str, parts: Sequence[bytes] = ()) -> list[bytes]:
        told = self.changed(call, name, list(parts))
        self.tape[call].append((name, told))
        return self.parties.ask(name, call, self.session.rounds.session, told)

    def all(self, call: Call, parts: Sequence[bytes] = ()) -> list[list[bytes]]:
        return [self.ask(call, name, parts) for name in NAMES]

    def mix(self) -> list[list[bytes]]:
        """All phases; what the silos say to the last."""
        return self.all(Call.TAKE, self.until_taken())

    def until_taken(self) -> list[bytes]:
        """All phases but the last; what all say that they saw."""
        keys = [one for (one,) in self.all(Call.LIST)]
        commits = [one for (one,) in self.all(Call.WRAP, keys)]
        shown = self.all(Call.SHOW, commits)
        names, forms = [one[0] for one in shown], [one[1] for one in shown]
        seen = [one for (one,) in self.all(Call.LOOK, names)]
        for turn, name in enumerate(NAMES, 1):
            made = self.ask(Call.MIX, name, [*seen, *forms])
            assert unverified(made[0]).tag is Tag.MIX_NAMES, refusal(made)
            names, forms = made[:1], made[1:]
            told = {one: [*(seen if one != name else ()), *names] for one in NAMES}
            seen = [self.ask(Call.LOOK, one, told[one])[0] for one in NAMES]
            assert [unverified(one).attempt for one in seen] == [turn] * len(NAMES)
        return seen

    def model(self, name: str, number: int) -> list[bytes]:
        session = self.session
        frame = self.parties.sealed(
            "aggregator",
            Tag.MODEL,
            b"".join(session.round_parameters.model_parts((1, 2, 3), session.initial)),
            session=session.rounds.session,
            round=number,
            receiver=EVERYBODY,
        )
        return self.ask(Call.MODEL, name, [frame])

    def answered(self, number: int) -> None:
        """A round of all silos."""
        links = [self.model(name, number)[0] for name in NAMES]
        for name in NAMES:
            (masked,) = self.ask(Call.SEED, name, links)
            assert unverified(masked).tag is Tag.MASKED


def test_no_model_is_answered_without_a_list(gather: Any) -> None:
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    assert refusal(hand.model("ann", 1)) == ("protocol", "relay")
    hand.until_taken()
    assert refusal(hand.model("ann", 1)) == ("protocol", "relay")  # it is not finished
    assert any(
        "expected a shuffled token list before the MODEL of round 1" in s for s in parties.said
    )
    assert parties.rows("ann") == []


@pytest.mark.slow
@every_kind
def test_a_list_serves_the_attempts_that_it_is_made_for(gather: Any, tokens: str) -> None:
    parties = gather(tokens)
    hand = Hand(parties, opened(parties))
    assert hand.mix() == [[], [], []]
    served = {"per-step": 1, "per-epoch": EPOCH, "static": STEPS}[tokens]
    for number in range(1, 1 + served):
        for name in NAMES:
            assert refusal(hand.ask(Call.LIST, name)) == ("protocol", "relay")
        hand.answered(number)
    if tokens != "static":  # where the session has no attempts left either
        assert refusal(hand.model("ann", 1 + served)) == ("protocol", "relay")
        assert hand.mix() == [[], [], []]
        hand.answered(1 + served)
    assert any("got a demand for it while list 1 is in force" in line for line in parties.said)
    assert hand.tape[Call.LIST][0] == ("ann", [])


@pytest.mark.slow
def test_a_round_that_is_left_out_names_the_aggregator_and_costs_nothing(gather: Any) -> None:
    """Parts 1, 5, 9 … of a kept list are the same records: they would be paid for once."""
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    hand.mix()
    hand.answered(1)
    before = parties.rows("ann")
    assert refusal(hand.model("ann", 5)) == ("protocol", "aggregator")
    assert refusal(hand.model("ann", 3)) == ("protocol", "aggregator")
    assert refusal(hand.model("ann", 1)) == ("protocol", "relay")
    assert parties.rows("ann") == before
    hand.answered(2)


@pytest.mark.slow
def test_a_session_may_begin_with_any_round(gather: Any, drawn: Drawn) -> None:
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    hand.mix()
    for number in (3, 4, 5, 6):
        hand.answered(number)
    used = Counter(record for batch in drawn.members() for record in batch)
    assert len(used) == ALL
    assert set(used.values()) == {1}
    assert len(parties.rows("ann")) == 1


@pytest.mark.slow
def test_no_phase_is_done_twice_or_out_of_its_order(gather: Any) -> None:
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    for call in Call:
        if call > Call.LIST:
            assert refusal(hand.ask(call, "ann")) == ("protocol", "relay")
    keys = [one for (one,) in hand.all(Call.LIST)]
    assert refusal(hand.ask(Call.LIST, "ann")) == ("protocol", "relay")
    assert refusal(hand.ask(Call.SHOW, "ann", keys)) == ("protocol", "relay")
    commits = [one for (one,) in hand.all(Call.WRAP, keys)]
    assert refusal(hand.ask(Call.WRAP, "ann", keys)) == ("protocol", "relay")
    shown = hand.all(Call.SHOW, commits)
    assert refusal(hand.ask(Call.SHOW, "ann", commits)) == ("protocol", "relay")
    names = [one[0] for one in shown]
    seen = [one for (one,) in hand.all(Call.LOOK, names)]
    assert refusal(hand.ask(Call.LOOK, "ann", names)) == ("protocol", "relay")
    forms = [one[1] for one in shown]
    assert refusal(hand.ask(Call.MIX, "bob", [*seen, *forms])) == ("protocol", "relay")
    assert any("expected look next in the making of this list, got mix" in s for s in parties.said)


@pytest.mark.slow
def test_no_list_is_made_of_an_old_ones_frames(gather: Any) -> None:
    parties = gather("per-step")
    hand = Hand(parties, opened(parties))
    hand.mix()
    hand.answered(1)
    old = {call: dict(told) for call, told in hand.tape.items()}
    hand.all(Call.LIST)
    assert refusal(hand.ask(Call.WRAP, "ann", old[Call.WRAP]["ann"])) == ("protocol", "relay")
    assert any("expected a MIX_KEY of step 0 of list 2" in line for line in parties.said)


def test_a_list_that_was_opened_is_the_last_of_its_session(gather: Any) -> None:
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    seen = hand.until_taken()
    complaint = sealed_as(parties, "cyn", unverified(seen[2]), Tag.MIX_COMPLAINT, b"")
    given = [hand.ask(Call.GIVE_UP, name, [complaint]) for name in NAMES]
    assert [unverified(one).tag for (one,) in given] == [Tag.MIX_OPENED] * 3
    for call, parts in ((Call.TAKE, seen), (Call.LIST, [])):
        assert refusal(hand.ask(call, "ann", parts)) == ("protocol", "relay")
    assert refusal(hand.model("ann", 1)) == ("protocol", "relay")
    assert parties.rows("ann") == []


def test_a_finished_list_is_never_opened(gather: Any) -> None:
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    hand.mix()
    (seen,) = [told[2] for name, told in hand.tape[Call.TAKE] if name == "ann"]
    complaint = sealed_as(parties, "cyn", unverified(seen), Tag.MIX_COMPLAINT, b"")
    assert refusal(hand.ask(Call.GIVE_UP, "ann", [complaint])) == ("protocol", "relay")


def test_a_verdict_rests_on_what_a_silo_was_shown_itself_and_is_given_once(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one list left out, whoever complained would seem to have had no reason."""
    parties = gather("static")
    hand = Hand(parties, opened(parties))
    seen = hand.until_taken()
    complaint = sealed_as(parties, "cyn", unverified(seen[2]), Tag.MIX_COMPLAINT, b"")
    opened_keys = [hand.ask(Call.GIVE_UP, name, [complaint])[0] for name in NAMES]
    keys = hand.tape[Call.WRAP][0][1]
    looks = [told for name, told in hand.tape[Call.LOOK] if name == "ann"]
    names = [one for told in looks for one in told if unverified(one).tag is Tag.MIX_NAMES]
    told = hand.tape[Call.MIX][0][1]
    forms = [one for one in told if unverified(one).tag is Tag.MIX_FORMS]
    whole = [*keys, *names, *forms, complaint, *opened_keys]
    for gone in (keys[0], names[-1], forms[0], complaint, opened_keys[1]):
        left = [one for one in whole if one != gone]
        assert refusal(hand.ask(Call.JUDGE, "ann", left)) == ("protocol", "relay")
    begun: list[int] = []
    pool = token_lists.process_pool

    def counted(operations: int) -> Any:
        begun.append(operations)
        return pool(operations)

    monkeypatch.setattr(token_lists, "process_pool", counted)
    assert refusal(hand.ask(Call.JUDGE, "ann", whole)) == ("protocol", "cyn")
    for _ in range(3):  # asked again, it does no work again
        assert refusal(hand.ask(Call.JUDGE, "ann", whole)) == ("protocol", "relay")
    assert len(begun) == 1
    assert any("expected one JUDGE of a list" in line for line in parties.said)


@pytest.mark.slow
def test_a_silo_names_who_showed_another_silo_another_list(gather: Any) -> None:
    """Also where the aggregator helps: nobody goes on to the next step."""
    parties = gather("static")
    other = another(parties)

    def changed(call: Call, name: str, parts: list[bytes]) -> list[bytes]:
        return other(parts) if (call, name) == (Call.LOOK, "cyn") else parts

    hand = Hand(parties, opened(parties), changed)
    with pytest.raises(AssertionError, match="'protocol', 'bob'"):
        hand.until_taken()
    assert hand.tape[Call.MIX][-1][0] == "cyn"
    assert any("got two different things that it signed" in line for line in parties.said)


@pytest.mark.slow
def test_no_list_where_batches_are_not_joint(tmp_path: Path) -> None:
    parties = Watched.gather(tmp_path, tiny())
    session = opened(parties)
    for call in Call:
        if call > Call.CLOSE:
            found = parties.ask("ann", call, session.rounds.session)
            assert refusal(found) == ("protocol", "relay")


# The numbers of records ------------------------------------------------------------------------


def test_a_silo_with_other_records_than_the_study_states_takes_no_part(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gather("static")
    source = named_object("python:network.test_lists:records", "data.source")
    monkeypatch.setitem(source.__globals__["COUNTS"], "ann", 6)  # of the module as it was hashed
    found = parties.ask("ann", Call.OPEN, NEW, [open_frame(parties, NEW)])
    assert refusal(found) == ("failed", "")
    told = "expected 5 records of ann, as data.counts states, got another number"
    assert any(told in one for one in parties.said)


def test_a_study_that_does_not_state_the_numbers_is_not_run_apart(gather: Any) -> None:
    parties = gather("static", data={"counts": []})
    with pytest.raises(RefusedError, match=r"expected data\.counts .* state how many records"):
        parties.serve(timeouts=HASTY)
