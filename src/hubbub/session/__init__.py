"""The order of the protocol, once: set-up, rounds, token lists, and who answers what."""

from hubbub.session.ask import Absent, AbsentError, Answer, Call, Peers
from hubbub.session.evidence_exchange import AttestedHashes, AttestedSession, Attests, digest_of
from hubbub.session.in_process import Federation, Notice, federate, raised_by
from hubbub.session.layout import Layout, layout_of, round_parameters_of
from hubbub.session.node_party import NodeParty
from hubbub.session.noisy_sums import NoisySums
from hubbub.session.party import Membership, Party
from hubbub.session.recorder import NoRecorder, Recorder
from hubbub.session.rounds import Rounds
from hubbub.session.session_offer import (
    REASONS,
    RefusedError,
    SessionOffer,
    check_apart,
    part_of_plan,
    purposes_of,
    sent_down,
)
from hubbub.session.setup import SetUp
from hubbub.session.silo_party import SiloParty, lists_of
from hubbub.session.sums import PrivateSum, private_sum, secure_sum
