"""What stands before the chapters, whatever they are drawn as."""

from __future__ import annotations

from hubbub.core.number_format import several
from hubbub.desk.report.dossier.composing import Composed, Dossier

OPENING = (
    "Each sentence rests on members of the run's evidence, named under it, which “hubbub verify” "
    "has found to be re-derived (computed again and found equal) or signed (by the party that it "
    "is about, or by the aggregator). What nothing shows is called not shown, and what only a "
    "person can write is left open under a name.",
    "It draws no conclusion of law and gives no advice: whoever decides does that, and signs it.",
)
WRONG_TITLE = "What does not hold"
TRUST_TITLE = "What nothing shows, and has to be trusted"


def counted(dossier: Dossier) -> str:
    """How many sentences stand how, and how many blanks are open."""
    counts = ", ".join(f"{number} {name}" for name, number in sorted(dossier.counts.items()))
    left = several(len(dossier.open), "answer")
    return (
        f"Study id {dossier.study_id}. Sentences: {counts}. Still to be written by people: {left}."
    )


def summed_up(chapter: Composed) -> str:
    """What a reader finds in a chapter."""
    said = several(len(chapter.sentences), "sentence")
    left = f", {several(len(chapter.open), 'answer')} to be written" if chapter.open else ""
    return f"{said}{left}"


def capital(clause: str) -> str:
    """A clause as the beginning of a sentence."""
    return clause[:1].upper() + clause[1:]
