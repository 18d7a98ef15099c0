from .ask import (
    LEFT_OUT as LEFT_OUT,
    Absent as Absent,
    AbsentError as AbsentError,
    Answer as Answer,
    Call as Call,
    Peers as Peers,
)
from .attestation_exchange import (
    AttestedHashes as AttestedHashes,
    AttestedSession as AttestedSession,
    Attests as Attests,
    digest_of as digest_of,
)
from .in_process import (
    Federation as Federation,
    Notice as Notice,
    federate as federate,
    raised_by as raised_by,
)
from .layout import (
    Layout as Layout,
    layout_of as layout_of,
    round_parameters_of as round_parameters_of,
)
from .node_party import (
    NodeParty as NodeParty,
)
from .noisy_sums import (
    NoisySums as NoisySums,
)
from .party import (
    Membership as Membership,
    Party as Party,
)
from .recorder import (
    NoRecorder as NoRecorder,
    Recorder as Recorder,
)
from .rounds import (
    Rounds as Rounds,
)
from .session_offer import (
    LARGEST_OFFER as LARGEST_OFFER,
    OWN as OWN,
    REASONS as REASONS,
    RefusedError as RefusedError,
    SessionOffer as SessionOffer,
    check_apart as check_apart,
    planned_for as planned_for,
)
from .setup import (
    SetUp as SetUp,
    kept_of_set_up as kept_of_set_up,
)
from .silo_party import (
    SiloParty as SiloParty,
    lists_of as lists_of,
)
from .secure_sums import (
    PrivateSum as PrivateSum,
    private_sum as private_sum,
    secure_sum as secure_sum,
)
