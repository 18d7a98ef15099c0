"""What the parties of a run say of it in the end: the evidence, each silo's part by itself."""

from __future__ import annotations

from typing import Any

from hubbub.assurance import evidence
from hubbub.assurance.ledger import Ledger
from hubbub.assurance.transcript import files, read_header
from hubbub.errors import StudyError
from hubbub.planning import TRAINING, Plan, mechanism_of
from hubbub.training.run_folder import RunFolder
from hubbub.training.run_sessions import LocalVenue


def evidence_of(venue: LocalVenue, plan: Plan, attempts: int, folder: RunFolder) -> str:
    """What the parties of a run in one process say of it: every silo signs what its ledger holds.

    Args:
        venue: of the run, with its ledgers and keys.
        plan: that was carried out.
        attempts: that were charged for training.
        folder: of the run, with everything in it but evidence and report.
    """
    parts = [_part(venue, plan, folder, index) for index in venue.ledgers]
    return evidence.collect(
        venue.keys[0],
        folder.path,
        plan=plan,
        roster=venue.roster,
        parts=parts,
        attempts=attempts,
    )


def _part(venue: LocalVenue, plan: Plan, folder: RunFolder, index: int) -> dict[str, Any]:
    """What one silo says of its ledger."""
    ledger, asked = venue.ledgers[index], plan.study.privacy
    sessions, epoch = folder.sessions(TRAINING), mechanism_of(plan.study).epoch
    sent = {read_header(path).session for path in files(folder.path)}
    rows = sum(entry.session in sessions for entry in ledger.entries())
    return evidence.part_of(
        venue.keys[index],
        study=plan.study.id,
        sessions=sent,  # one that was interrupted before its transcript began has sent nothing
        ledger_head=ledger.head,
        ledger_rows=ledger.rows,
        attempts=rows * epoch,
        data_set=_spent(ledger, asked.delta, asked.relation),
    )


def _spent(ledger: Ledger, delta: float, relation: str) -> dict[str, Any]:
    """What was ever spent on the data set; None past what is certified."""
    try:
        epsilon = ledger.epsilon(delta=delta, relation=relation)
    except StudyError:
        epsilon = float("inf")
    known = epsilon if epsilon < float("inf") else None
    return {"epsilon": known, "delta": delta, "relation": relation}
