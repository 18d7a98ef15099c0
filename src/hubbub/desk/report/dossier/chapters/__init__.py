"""The dossier's chapters, in order: each a list of questions and blanks, and no code of its own."""

from hubbub.desk.report.dossier.chapters import (
    hazards,
    impact_assessment,
    model_card,
    opinion,
    secure_processing,
)

CHAPTERS = (
    impact_assessment.CHAPTER,
    hazards.CHAPTER,
    opinion.CHAPTER,
    secure_processing.CHAPTER,
    model_card.CHAPTER,
)
