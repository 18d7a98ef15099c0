"""Whether the books of a run are right: what silos charged, what they sent, what the run claims.

It reads everybody's folders after the run, as nobody in a consortium could, and believes none of
them: every masked vector that the aggregator used must have its row in the ledger of its sender.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import files, read


@dataclass(frozen=True, kw_only=True)
class Books:
    """Where one run's books are.

    Args:
        study: that was run.
        roster: of it.
        homes: below which everybody's folders are.
        folder: of the run, at the aggregator.
        step: the last that its event log told.
    """

    study: Study
    roster: Roster
    homes: Path
    folder: Path
    step: int


@dataclass(frozen=True, kw_only=True)
class Account:
    """One run's books.

    Args:
        step: the last step of the model.
        counted: attempts that the aggregator's epsilon stands for.
        charged: rows of the study in each silo's ledger.
        wrong: sentences about what does not fit; empty is right.
    """

    step: int
    counted: int
    charged: dict[str, int]
    wrong: list[str]

    @property
    def rows(self) -> str:
        """The fewest and the most rows at a silo."""
        return f"{min(self.charged.values())}-{max(self.charged.values())}"


def account(run: Books, *, finished: bool) -> Account:
    """Look everything up."""
    wrong: list[str] = []
    rows = {name: _rows(run, name, wrong) for name in run.study.parties.names}
    used = _used(run, wrong)
    epoch = main_of(run.study).mechanism.epoch  # attempts of a session that a row pays for
    for name, sent in used.items():
        if missing := _unpaid(sent, rows[name], epoch):
            wrong.append(f"{name} answered {missing} attempts that it did not charge")
    counted = _counted(run) if finished else 0
    charged = {name: epoch * sum(found.values()) for name, found in rows.items()}
    steps = run.study.training.steps
    if max(charged.values()) > steps:
        wrong.append(f"{max(charged.values())} attempts charged, the study allows {steps}")
    if finished and counted < max(charged.values()):
        wrong.append(f"the run counts {counted} attempts, a silo paid {max(charged.values())}")
    if finished:
        wrong += [one.verdict for one in verify(run.folder, lambda *_: None) if not one.holds]
    return Account(step=run.step, counted=counted, charged=charged, wrong=wrong)


def _unpaid(
    sent: set[tuple[bytes, int, int]], rows: Counter[tuple[bytes, int, int]], epoch: int
) -> int:
    """Attempts without a row; where one pays for an epoch, those beyond a session's rows."""
    if epoch == 1:
        return len(sent - rows.keys())
    paid = Counter(session for session, _, _ in rows.elements())
    made = Counter(session for session, _, _ in sent)
    return sum(max(0, count - epoch * paid[session]) for session, count in made.items())


def _counted(run: Books) -> int:
    evidence = json.loads((run.folder / "evidence.json").read_text(encoding="utf-8"))
    return int(evidence["epsilon"]["attempts"])


def _rows(run: Books, name: str, wrong: list[str]) -> Counter[tuple[bytes, int, int]]:
    """The attempts that a silo has charged for the study."""
    with Ledger(run.homes / name / "ledger.sqlite") as ledger:
        ledger.verify()
        mine = [one for one in ledger.entries() if one.study == run.study.id]
        if ledger.spent_on(run.study.id) != len(mine):
            wrong.append(f"{name}'s ledger says other attempts than it has rows")
    found = Counter((one.session, one.round, one.attempt) for one in mine)
    if twice := [one for one, times in found.items() if times > 1]:
        wrong.append(f"{name} charged {len(twice)} attempts twice")
    return found


def _used(run: Books, wrong: list[str]) -> dict[str, set[tuple[bytes, int, int]]]:
    """The attempts of which the aggregator has used a silo's vector."""
    roster = run.roster
    used: dict[str, set[tuple[bytes, int, int]]] = {name: set() for name in run.study.parties.names}
    bodies: Counter[bytes] = Counter()
    for path in files(run.folder):
        for frame in read(path):
            if frame.tag is Tag.MASKED:
                attempt = (frame.session, frame.round, frame.attempt)
                name = roster.name(frame.sender)
                if attempt in used[name]:
                    wrong.append(f"{name} answered an attempt twice")
                used[name].add(attempt)
                bodies[frame.digest] += 1
    if any(times > 1 for times in bodies.values()):
        wrong.append("a masked vector was sent twice")
    return used
