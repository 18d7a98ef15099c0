"""What lets others believe a run: transcript, evidence, a run played again, audit, attestation.

`replay` and `audit` need models, and are imported by their own names.
"""

from hubbub.ledger import (
    Cap,
    Entry,
    HeadStatement,
    Ledger,
    LedgerMechanism,
    PrivacyFilter,
    Progress,
    Tally,
    Witness,
    Witnessed,
    attempts_of,
    entry_of,
    kind_of,
)
from hubbub.verification.attestation import Attester, MachineAttester, StudyAttestation
from hubbub.verification.evidence import (
    AUDIT,
    FILE,
    MODEL,
    Finding,
    check,
    check_content,
    checked_part,
    collect,
    difference,
    load,
    part_of,
    read_audit,
    read_whole,
    remedy,
    write_audit,
)
from hubbub.verification.transcript import Transcript, files, read, read_header, recover
