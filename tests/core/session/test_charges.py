"""A silo's party writes down what an attempt costs before anything of the answer exists (P15)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import BudgetError, ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.silo import Charge
from hubbub.core.session.ask import Call
from hubbub.core.session.attestation_exchange import AttestedSession
from hubbub.core.session.offer import RefusedError
from hubbub.core.session.party import Membership, SiloParty
from protocol.parties import sessions_of, world

W = world()
BANDS = (UNIT - 2, -1, -1)


class Answering:
    """Answers whatever it is asked, and notes what was done in which order."""

    def __init__(self, *charges: Charge) -> None:
        self.charges, self.done, self.is_open = list(charges), [], False

    def accept(self, model: bytes) -> Charge:
        self.done.append("accepted")
        return self.charges.pop(0)

    def decline(self) -> None:
        self.done.append("declined")

    def reveal(self) -> bytes:
        self.done.append("revealed")
        return b"link"

    def learn_seed(self, links: list[bytes]) -> None:
        self.done.append(f"learned {len(links)}")

    def contribute(self) -> bytes:
        self.done.append("answered")
        return b"masked"

    def shares(self) -> dict[int, bytes]:
        return {5: b"share"}


class Lists:
    """Token lists, one of which pays for all attempts after its first."""

    def __init__(self, done: list[str]) -> None:
        self.done, self.is_paid = done, False

    def at_silo(self, *_: object) -> Lists:
        return self

    def prepare(self, model: bytes, *, is_open: bool) -> None:
        self.done.append("prepared, open" if is_open else "prepared")

    def use(self, round: int) -> None:
        self.done.append(f"used {round}")
        self.is_paid = True


def party(
    silo: Answering,
    *,
    correlation: tuple[int, ...] = (),
    batch: int = 0,
    lists: Any = None,
    **more: Any,
) -> SiloParty:
    """A silo whose session is set up."""
    joint = {"batch": batch, "records": 9} if batch else {}
    numbers = replace(W.round_parameters, correlation=correlation, **joint)
    membership = Membership(
        keys=W.keys[1],
        channel=W.channel(),
        index=1,
        round_parameters=numbers,
        layout=W.layout,
        offer=b"",
        source=SecureSource(),
        joint=lists,
    )
    made = SiloParty(membership, lambda: pytest.fail("it has its silo"), **more)
    made.agreed, made.silo = sessions_of(W)[1], silo
    return made


def noting(done: list[str], refused: bool = False) -> Any:
    """A ledger that notes what it is told, or refuses it."""

    def record(session: Session, charge: Charge) -> None:
        assert session == sessions_of(W)[1]
        done.append(f"charged {charge.round}.{charge.attempt}")
        if refused:
            raise BudgetError("the cap is reached")

    return record


def test_p15_an_attempt_is_charged_when_its_model_is_accepted_and_answered_after_that() -> None:
    silo = Answering(Charge(round=1, attempt=0), Charge(round=1, attempt=1))
    one = party(silo, record=noting(silo.done))
    work = one.take(Call.MODEL, [b"model"])
    assert silo.done == ["accepted", "charged 1.0"]
    assert work() == [b"masked", b"share"]
    one.take(Call.MODEL, [b"model"])  # of which nobody fetches the answer
    assert silo.done == ["accepted", "charged 1.0", "answered", "accepted", "charged 1.1"]


def test_p15_what_the_ledger_refuses_is_never_answered() -> None:
    silo = Answering(Charge(round=1, attempt=0))
    one = party(silo, record=noting(silo.done, refused=True))
    with pytest.raises(BudgetError):
        one.take(Call.MODEL, [b"model"])
    assert silo.done == ["accepted", "charged 1.0", "declined"]


def test_p15_nothing_is_accepted_before_the_session_is_set_up_or_with_other_frames() -> None:
    silo = Answering(Charge(round=1, attempt=0))
    one = party(silo, record=noting(silo.done))
    for parts in ([], [b"model", b"model"]):
        with pytest.raises(ProtocolError, match="one MODEL"):
            one.take(Call.MODEL, parts)
    one.agreed = None
    with pytest.raises(RefusedError, match="set up"):
        one.take(Call.MODEL, [b"model"])
    assert not silo.done


@pytest.mark.parametrize("first", [1, 2, 3, 4, 6])
def test_p25_the_first_row_of_noise_in_each_epoch_is_charged_and_pays_for_the_others(
    first: int,
) -> None:
    """Whichever attempt is the first that a silo has part in."""
    rows = range(first, 11)
    silo = Answering(*(Charge(round=row, attempt=0, row=row) for row in rows))
    one = party(silo, correlation=BANDS, record=noting(silo.done))
    for _ in rows:
        one.take(Call.MODEL, [b"model"])
    charged = [int(word.split()[1][:-2]) for word in silo.done if word.startswith("charged")]
    assert charged == sorted({max(first, start) for start in (1, 4, 7, 10) if start + 3 > first})


def test_p25_an_epoch_that_the_ledger_refused_is_not_paid() -> None:
    silo = Answering(Charge(round=1, attempt=0, row=1), Charge(round=1, attempt=1, row=2))
    one = party(silo, correlation=BANDS, record=noting(silo.done, refused=True))
    for _ in range(2):
        with pytest.raises(BudgetError):
            one.take(Call.MODEL, [b"model"])
    assert silo.done.count("declined") == 2


def test_p9_a_list_is_paid_once_and_each_part_of_it_is_used_once_answered_or_not() -> None:
    silo = Answering(Charge(round=1, attempt=0), Charge(round=2, attempt=0))
    one = party(silo, record=noting(silo.done), lists=Lists(silo.done))
    for _ in range(2):
        one.take(Call.MODEL, [b"model"])
    first = ["prepared", "accepted", "charged 1.0", "used 1"]
    assert silo.done == [*first, "prepared", "accepted", "used 2"]
    silo.is_open, silo.charges = True, [Charge(round=3, attempt=0)]
    one.take(Call.MODEL, [b"model"])
    assert silo.done[-3] == "prepared, open"


def test_p9_what_is_drawn_together_is_revealed_at_the_model_and_answered_at_the_links() -> None:
    silo = Answering(Charge(round=1, attempt=0))
    one = party(silo, batch=2, record=noting(silo.done))
    assert one.take(Call.MODEL, [b"model"])() == [b"link"]
    assert silo.done == ["accepted", "charged 1.0", "revealed"]
    assert one.take(Call.SEED, [b"link", b"other"])() == [b"masked", b"share"]
    assert silo.done[3:] == ["learned 2", "answered"]


@pytest.mark.parametrize("refused", [False, True])
def test_p4_a_mask_graph_is_counted_before_a_silos_share_of_its_seed_is_shown(
    refused: bool,
) -> None:
    done: list[str] = []

    def permit() -> None:
        done.append("counted")
        if refused:
            raise BudgetError("no graph is left")

    made = party(Answering(), permit=permit)
    agreement: Any = SimpleNamespace(reveal=lambda parts: done.append("shown") or b"share")
    made._agreement = agreement
    if refused:
        with pytest.raises(BudgetError):
            made.take(Call.REVEAL, [])
    else:
        assert made.take(Call.REVEAL, [])() == [b"share"]
    assert done == (["counted"] if refused else ["counted", "shown"])


def test_evidence_is_bound_to_all_that_names_its_party_each_with_its_length() -> None:
    """What machines of other versions put into their quotes, spelled out (docs/attestation.md)."""
    session = AttestedSession(**vars(W.channel()), attests=Any, at=0)
    silo, nonces = W.roster.parties[2], bytes(range(32))
    name = f"2:silo:{silo.name}".encode()
    parts = (session.study, session.session, name, silo.verifying, silo.sealing, nonces)
    told = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    expected = hashlib.sha512(b"hubbub report data v1" + told).digest()
    assert session.report_data(2, nonces) == expected
