"""Hazards that NIST SP 800-226 warns of, one by one, as questions to this run."""

from __future__ import annotations

from hubbub.desk.report.dossier import statements as say
from hubbub.desk.report.dossier.dossier_parts import Blank, BoardQuestion, Chapter, Heading

CHAPTER = Chapter(
    title="Hazards of NIST SP 800-226",
    source="Hazards that NIST SP 800-226, “Guidelines for Evaluating Differential Privacy "
    "Guarantees” (March 2025), warns of, from the top of its pyramid (epsilon) to the bottom (how "
    "data were collected). Choice, order and words are ours; what counts is the publication.",
    parts=(
        Heading(title="The guarantee"),
        BoardQuestion(ask="Epsilon is too large to mean much", words=say.against_stated),
        BoardQuestion(
            ask="Delta is too large, so that somebody may be exposed whole", words=say.delta
        ),
        BoardQuestion(ask="The unit of privacy is not a person", words=say.unit),
        BoardQuestion(
            ask="It is unclear which neighbours are meant (add-remove, substitute)",
            words=say.against_stated,
        ),
        BoardQuestion(ask="Releases add up, and nobody counts them together", words=say.in_all),
        BoardQuestion(ask="More is asked than the epsilon is for", words=say.beside),
        BoardQuestion(ask="Results without noise are given out beside these", words=say.never),
        Blank(
            name="other-releases", ask="What else was, or will be, published about the same people?"
        ),
        Heading(title="The algorithm"),
        BoardQuestion(ask="One person can add without bound", words=say.clip),
        BoardQuestion(ask="The noise does not fit the sensitivity", words=say.noise),
        BoardQuestion(ask="Sampling is counted that did not take place", words=say.sampling),
        BoardQuestion(
            ask="Choices were made by looking at the records (bounds, tuning)", words=say.never
        ),
        Blank(
            name="choices",
            ask="How were columns, bounds and training settings chosen, and on which records?",
        ),
        BoardQuestion(
            ask="Noise makes results useless, or wrong for small groups", words=say.never
        ),
        Blank(name="bias", ask="For which groups is the result worse, and who looked?"),
        Heading(title="The deployment"),
        BoardQuestion(ask="A central party has to be trusted", words=say.enclaves),
        BoardQuestion(ask="Parties that should be apart are one", words=say.apart),
        BoardQuestion(ask="The parties collude", words=say.beyond),
        BoardQuestion(ask="Queries are asked by somebody who means harm", words=say.attempts),
        BoardQuestion(ask="Floating point betrays what noise should hide", words=say.grid),
        BoardQuestion(ask="Times and other side channels betray records", words=say.never),
        BoardQuestion(ask="The implementation has a defect", words=say.audit),
        BoardQuestion(ask="Nobody can see what was run", words=say.software),
        Heading(title="Beneath it"),
        BoardQuestion(ask="Records are not secured where they lie", words=say.never),
        Blank(name="access", ask="Who may read the records at each silo, and who sees to it?"),
        BoardQuestion(ask="Collecting the records exposed people already", words=say.never),
        Blank(name="collection", ask="How were the records collected, and where are copies?"),
    ),
)
