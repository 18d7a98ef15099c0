"""Attestation: evidence of which code a party runs on which machine, and whether it is enough.

`snp`, `nitro`, `dcap` and `software` verify a platform's evidence, pure functions over bytes with
the time as an argument; `attested_claims` is what they find, `platforms` picks one of them, and
`policy` says what is enough. `devices` makes this machine's evidence, and `study_attestation` is
what a session asks.
"""

from hubbub.verification.attestation.attested_claims import REPORT_DATA_BYTES, AttestedClaims
from hubbub.verification.attestation.devices import MachineAttester
from hubbub.verification.attestation.platforms import VERIFIERS, PlatformEvidence
from hubbub.verification.attestation.policy import (
    AllOf,
    AnyOf,
    EvidenceRule,
    MadeNear,
    Measured,
    MinimumTcb,
    ReportDataIs,
    policy_of,
)
from hubbub.verification.attestation.reference_values import of_build, of_machine
from hubbub.verification.attestation.software import SoftwareAttester, own_code
from hubbub.verification.attestation.study_attestation import (
    Attester,
    StudyAttestation,
    clock,
    judge,
    policy_digest,
)
