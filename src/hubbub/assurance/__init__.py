"""What lets others believe a run: ledger, transcript, evidence, verification, audit.

`verification` and `audit` need models, and are imported by their own names.
"""

from hubbub.assurance.attestation import Attester, MachineAttester, StudyAttestation
from hubbub.assurance.evidence import (
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
from hubbub.assurance.ledger import (
    Cap,
    Entry,
    HeadStatement,
    Kind,
    Ledger,
    PrivacyFilter,
    Progress,
    SumsBudget,
    Tally,
    Witness,
    Witnessed,
    attempts_of,
    entry_of,
    kind_of,
)
from hubbub.assurance.transcript import Transcript, files, read, read_header, recover
