"""Finished runs for tests: small studies, trained by the real protocol, with their evidence."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hubbub import Study
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.runs import local_backend
from hubbub.core.session.in_process import Federation
from hubbub.core.verification.evidence.collecting import FILE, collect, part_of
from hubbub.core.verification.transcript.frame_records import files, read_header
from hubbub.learning.queries.training_query import TRAINING
from hubbub.learning.runs.result import Result
from hubbub.learning.runs.run_study import run

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")


def a_study(
    *, steps: int = 6, transcript: str = "full", changes: tuple[tuple[str, str], ...] = ()
) -> Study:
    """The four hospitals, with few steps, and lines changed as told."""
    text = HEART.replace("steps = 60", f"steps = {steps}").replace(
        'transcript = "full"', f'transcript = "{transcript}"'
    )
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Study.parse(text)


planned = lru_cache(plan)


def finished(study: Study, folder: Path, *, made: Plan | None = None) -> tuple[Result, Federation]:
    """A run of it, with evidence; and the parties, whose keys are the only ones that can sign."""
    seen: list[Federation] = []
    real = local_backend.federate

    def spied(*given: Any, **named: Any) -> Federation:
        seen.append(real(*given, **named))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_backend, "federate", spied)
        result = run(study, folder, plan=made or planned(study, dimension=27))
    if not (folder / FILE).exists():
        write_evidence(result, seen[-1], folder)
    return result, seen[-1]


def write_evidence(result: Result, parties: Federation, folder: Path, **changes: Any) -> None:
    """The evidence of a run, signed by its parties."""
    study, parts, attempts = result.plan.study, [], 0
    sessions = [read_header(path) for path in files(folder)]
    for index in parties.roster.silos:
        with Ledger(folder.parent / "ledgers" / f"{parties.roster.name(index)}.sqlite") as ledger:
            mine = sum(one.purpose == TRAINING for one in sessions) and sum(
                entry.kind.noise_multiplier == result.plan.noise_multiplier
                for entry in ledger.entries()
                if entry.study == study.id
            )
            attempts = max(attempts, mine)
            parts.append(
                part_of(
                    parties.keys[index],
                    study=study.id,
                    sessions=[one.session for one in sessions],
                    ledger_head=ledger.head,
                    ledger_rows=1 + len(ledger),
                    attempts=mine,
                    data_set={
                        "epsilon": ledger.epsilon(delta=1e-5, relation="add-remove"),
                        "delta": 1e-5,
                        "relation": "add-remove",
                    },
                )
            )
    given = {
        "plan": result.plan,
        "roster": parties.roster,
        "parts": parts,
        "attempts": attempts,
    } | changes
    (folder / FILE).write_text(collect(parties.keys[0], folder, **given), encoding="utf-8")
