"""Parties of a study that asks for evidence, all in this process, each with an attester."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from hubbub import Study, plan
from hubbub.core.planning.query import GivenSum
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call
from hubbub.core.session.attestation_exchange import AttestedSession
from hubbub.core.session.in_process import LocalPeers
from hubbub.core.session.offer import Layout, SessionOffer, layout_of, round_parameters_of
from hubbub.core.session.party import Membership, NodeParty, Party, SiloParty
from hubbub.core.session.setup import SetUp
from hubbub.core.verification.attestation.policy import PlatformEvidence
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.site.attestation.devices import SoftwareAttester, own_code

NOW = 1_800_000_000
NAMES = ("ada", "bea", "cyd")


def role_of(code: str = "", more: str = "") -> str:
    """What a role must show, as a table in one line."""
    code = code or own_code().hex()
    return f'{{platform="software",measurements=[{{code="{code}"}}]{more}}}'


def study_of(
    asked: Mapping[str, str], nodes: int = 0, parties: str = "", silos: Sequence[str] = NAMES
) -> Study:
    """A study of three silos that asks for evidence of these roles."""
    tables = "\n".join(f"attestation.{role}={table}" for role, table in asked.items())
    names = ",".join(f'"{name}"' for name in silos)
    return Study.parse(f"""study.name="attested"
parties={{names=[{names}],colluders=0,compute_nodes={nodes}{parties}}}
data={{source="hubbub.datasets:heart",records=740}}
model={{kind="logistic",inputs=[26]}}
training={{steps=2,sampling="full-batch"}}
privacy={{epsilon=1,delta=1e-5}}
{tables}""")


@cache
def planned(study: Study) -> tuple[Layout, RoundParameters]:
    made = plan(study)
    return layout_of(made), round_parameters_of(made.main)


@dataclass(kw_only=True)
class Parties:
    """Everybody, and a relay between them that a test may bend."""

    study: Study
    attesters: Mapping[str, Callable[[str, bytes, int], PlatformEvidence]] = field(
        default_factory=dict
    )
    clocks: Mapping[str, int] = field(default_factory=dict)
    bend: Callable[[Call, int, list[bytes]], list[bytes]] = lambda _call, _to, frames: frames
    keys: Sequence[Keys] = ()

    def __post_init__(self) -> None:
        layout, round_parameters = planned(self.study)
        self.keys = self.keys or layout.keys()
        self.roster = Roster.of(self.keys)
        offer = SessionOffer.of("training", round_parameters, at=NOW)
        self.set_up = SetUp(
            peers=BentPeers(self.roster, {}, self),
            keys=self.keys[0],
            study=self.study.id,
            layout=layout,
            round_parameters=round_parameters,
            offer=offer,
            attests=self.attests("aggregator"),
        )
        for index in range(1, len(self.keys)):
            self.set_up.peers.parties[index] = self._party(index, layout, round_parameters, offer)

    def open_session(self):
        """The set-up, to its end."""
        return self.set_up.open_session()

    def attests(self, name: str) -> StudyAttestation | None:
        if self.study.attestation is None:
            return None
        attester = self.attesters.get(name, software())
        now = self.clocks.get(name, NOW)
        return StudyAttestation(asked=self.study.attestation, attester=attester, now=lambda: now)

    def _party(
        self, index: int, layout: Layout, round_parameters: RoundParameters, offer: SessionOffer
    ) -> Party:
        attests = self.attests(self.roster.name(index))
        channel = self.set_up.channel
        session = AttestedSession(**vars(channel), attests=attests, at=NOW)
        membership = Membership(
            keys=self.keys[index],
            channel=channel,
            index=index,
            round_parameters=round_parameters,
            layout=layout,
            offer=offer.payload(),
            source=SecureSource(),
            attested=session if attests else None,
            mask_stream=MaskStream(),
        )
        if index in self.roster.nodes:
            return NodeParty(membership)
        return SiloParty(membership, lambda: GivenSum(np.zeros(27)))


class BentPeers(LocalPeers):
    """Parties of this process behind a relay that changes frames; it notes who was asked what."""

    def __init__(self, roster: Roster, parties: dict[int, Party], of: Parties) -> None:
        super().__init__(roster, parties)
        self._of, self.asked = of, []

    def ask(self, call, requests, session, **more):
        bent = {i: self._of.bend(call, i, list(frames)) for i, frames in requests.items()}
        self.asked.append(call)
        yield from super().ask(call, bent, session, **more)


def software(**changes: object) -> Callable[[str, bytes, int], PlatformEvidence]:
    """An attester of the platform "software", which may be wrong in something."""
    made = SoftwareAttester(**changes)

    def attest(platform: str, report_data: bytes, at: int) -> PlatformEvidence:
        return PlatformEvidence(platform="software", quote=made.quote(report_data, at))

    return attest
