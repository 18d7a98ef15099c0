"""What the parties of a run say of it in the end: the evidence, each silo's part by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubbub.assurance import evidence
from hubbub.assurance.ledger import Ledger
from hubbub.assurance.transcript import files
from hubbub.assurance.transcript.records import read_header
from hubbub.disk import write_bytes
from hubbub.errors import StudyError
from hubbub.planning import TRAINING, Plan
from hubbub.protocol.identity import Roster
from hubbub.session.noisy_sums import Stage


def write_evidence(stage: Stage, plan: Plan, attempts: int, folder: Path) -> None:
    """Have every silo sign what its ledger holds, and the aggregator the rest.

    Args:
        stage: of the run, with its ledgers and keys.
        plan: that was carried out.
        attempts: that were charged for training.
        folder: of the run, with everything in it but evidence and report.
    """
    parts = [_part(stage, plan, index, ledger) for index, ledger in stage.ledgers.items()]
    text = evidence.collect(
        stage.keys[0],
        folder,
        plan=plan,
        roster=Roster.of(stage.keys),
        parts=parts,
        attempts=attempts,
    )
    write_bytes(folder / evidence.FILE, text.encode())


def _part(stage: Stage, plan: Plan, index: int, ledger: Ledger) -> dict[str, Any]:
    """What one silo says of its ledger."""
    assert stage.folder is not None, "evidence is of a folder"  # noqa: S101
    sessions, asked = stage.folder.sessions(TRAINING), plan.study.privacy
    told = {read_header(path).session for path in files(stage.folder.path)}
    rows = sum(entry.session in sessions for entry in ledger.entries())
    return evidence.part_of(
        stage.keys[index],
        study=plan.study.id,
        sessions=told,  # one that was interrupted before its transcript began has sent nothing
        ledger_head=ledger.head,
        ledger_rows=ledger.rows,
        attempts=rows * stage.epoch,
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
