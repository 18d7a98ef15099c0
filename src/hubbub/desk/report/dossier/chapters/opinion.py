"""What EDPB Opinion 28/2024 on AI models asks, as far as a run has something to say to it."""

from __future__ import annotations

from hubbub.desk.report.dossier import statements as say
from hubbub.desk.report.dossier import statements as study
from hubbub.desk.report.dossier.dossier_parts import Blank, BoardQuestion, Chapter, Heading

CHAPTER = Chapter(
    title="Questions of EDPB Opinion 28/2024",
    source="In the order of the questions that the Opinion of 17 December 2024 answers, in our "
    "words. "
    "Whether a model is anonymous, and whether an interest is legitimate, is for the controller "
    "and the supervisory authority to say, case by case; this chapter says what can be measured.",
    parts=(
        Heading(
            title="1. Is the model anonymous?",
            about="Asked are the likelihood that personal data are extracted from the model, "
            "and that queries yield them, with all means reasonably likely to be used.",
        ),
        BoardQuestion(
            ask="How likely is extraction, for whoever gets the model?", words=say.outsiders
        ),
        BoardQuestion(ask="What could the parties themselves learn?", words=say.against_stated),
        BoardQuestion(ask="How well can membership be told?", words=say.membership),
        BoardQuestion(ask="For whom does that hold?", words=say.unit),
        Heading(title="Design"),
        BoardQuestion(ask="Which data were selected?", words=study.columns),
        BoardQuestion(ask="How were they minimised?", words=study.what_leaves),
        BoardQuestion(
            ask="Which method limits what the model keeps of one person?", words=say.clip
        ),
        BoardQuestion(ask="Which noise is added?", words=say.noise),
        Blank(name="data-sources", ask="How were sources chosen, and which data were left out?"),
        BoardQuestion(ask="What limits the model's answers, once it is in use?", words=say.never),
        Blank(name="outputs", ask="Who may query the model, how often, and what is held back?"),
        Heading(title="Analysis and tests"),
        BoardQuestion(ask="Was what was planned carried out?", words=say.replayed),
        BoardQuestion(ask="Was the training attacked?", words=say.audit),
        BoardQuestion(
            ask="Were attribute inference, inversion, reconstruction and regurgitation tried on "
            "the model?",
            words=say.never,
        ),
        Blank(name="attack-tests", ask="Which other attacks were tried on the model, by whom?"),
        Heading(title="Documentation"),
        BoardQuestion(ask="Which model is it?", words=say.model_digest),
        BoardQuestion(ask="What made it?", words=say.software),
        BoardQuestion(ask="What did silos sign?", words=say.ledgers),
        Blank(
            name="anonymity",
            ask="What does the controller conclude about anonymity, and on "
            "which of the facts above?",
        ),
        Heading(
            title="2. and 3. Is the interest legitimate, in development and in use?",
            about="A test in three steps, for each: the interest, the necessity, the balance.",
        ),
        Blank(name="interest", ask="Which interest is pursued, is it lawful, clear and real?"),
        Blank(name="need", ask="Why can it not be reached with less personal data?"),
        Blank(
            name="balance",
            ask="How do the rights of the people weigh, and what do they reasonably expect?",
        ),
        BoardQuestion(ask="Which measures soften the impact?", words=say.odds),
        Heading(title="4. Were the data processed lawfully before?"),
        BoardQuestion(ask="Where do the records come from?", words=study.columns),
        Blank(
            name="lawfulness",
            ask="What shows that the records were collected lawfully, and "
            "what follows for the model if they were not?",
        ),
    ),
)
