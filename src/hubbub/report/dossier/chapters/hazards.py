"""The hazards of NIST SP 800-226, one by one, as questions to this run."""

from __future__ import annotations

from hubbub.report.dossier import statements as say
from hubbub.report.dossier.parts import Blank, Chapter, Heading, Question

CHAPTER = Chapter(
    title="Hazards of NIST SP 800-226",
    source="The privacy hazards that NIST SP 800-226, “Guidelines for Evaluating Differential "
    "Privacy Guarantees” (2025), warns of, in our words and from the top of its pyramid to the "
    "bottom. What counts is the publication's own text.",
    parts=(
        Heading(title="The guarantee"),
        Question(ask="Epsilon is too large to mean much", words=say.against_stated),
        Question(ask="Delta is too large, so that somebody may be exposed whole", words=say.delta),
        Question(ask="The unit of privacy is not a person", words=say.unit),
        Question(
            ask="It is unclear which neighbours are meant (add-remove, substitute)",
            words=say.against_stated,
        ),
        Question(ask="Releases add up, and nobody counts them together", words=say.in_all),
        Question(ask="More is asked than the epsilon is for", words=say.beside),
        Question(ask="Results without noise are given out beside these", words=say.never),
        Blank(
            name="other-releases", ask="What else was, or will be, published about the same people?"
        ),
        Heading(title="The algorithm"),
        Question(ask="One person can add without bound", words=say.clip),
        Question(ask="The noise does not fit the sensitivity", words=say.noise),
        Question(ask="Sampling is counted that did not take place", words=say.sampling),
        Question(
            ask="Choices were made by looking at the records (bounds, tuning)", words=say.never
        ),
        Blank(
            name="choices",
            ask="How were columns, bounds and training settings chosen, and on which records?",
        ),
        Question(ask="Noise makes results useless, or wrong for small groups", words=say.never),
        Blank(name="bias", ask="For which groups is the result worse, and who looked?"),
        Heading(title="The deployment"),
        Question(ask="A central party has to be trusted", words=say.enclaves),
        Question(ask="Parties that should be apart are one", words=say.apart),
        Question(ask="The parties collude", words=say.beyond),
        Question(ask="Queries are asked by somebody who means harm", words=say.attempts),
        Question(ask="Floating point betrays what noise should hide", words=say.grid),
        Question(ask="Times and other side channels betray records", words=say.never),
        Question(ask="The implementation has a defect", words=say.audit),
        Question(ask="Nobody can see what was run", words=say.software),
        Heading(title="Beneath it"),
        Question(ask="Records are not secured where they lie", words=say.never),
        Blank(name="access", ask="Who may read the records at each silo, and who sees to it?"),
        Question(ask="Collecting the records exposed people already", words=say.never),
        Blank(name="collection", ask="How were the records collected, and where are copies?"),
    ),
)
