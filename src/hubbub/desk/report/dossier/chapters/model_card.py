"""A model card, after Mitchell et al., “Model Cards for Model Reporting” (2019)."""

from __future__ import annotations

from hubbub.desk.report.dossier import statements as say
from hubbub.desk.report.dossier import statements as study
from hubbub.desk.report.dossier.dossier_parts import Blank, BoardQuestion, Chapter, Heading

CHAPTER = Chapter(
    title="Model card",
    source="In the sections of Mitchell et al., “Model Cards for Model Reporting” (2019).",
    parts=(
        Heading(title="Model details"),
        BoardQuestion(ask="Which model is it?", words=say.model_digest),
        BoardQuestion(ask="What kind?", words=study.what_is_done),
        BoardQuestion(ask="By which study?", words=study.study),
        BoardQuestion(ask="With which software?", words=say.software),
        Blank(name="contact", ask="Who answers questions about it?"),
        Blank(name="model-licence", ask="Under which licence may it be used?"),
        Heading(title="Intended use"),
        Blank(name="intended-use", ask="Who is to use it, and for what?"),
        Blank(name="other-uses", ask="For what is it not to be used?"),
        Heading(title="Factors"),
        Blank(name="groups", ask="Which groups, instruments and settings matter?"),
        Heading(title="Metrics and evaluation data"),
        BoardQuestion(ask="How well does it do on public test records?", words=say.never),
        BoardQuestion(
            ask="Was it evaluated on held-back records in the same epsilon?", words=say.beside
        ),
        Blank(
            name="evaluation",
            ask="How well does it do, on which records, and for whom does it fail?",
        ),
        Heading(title="Training data"),
        BoardQuestion(ask="Whose records?", words=study.parties),
        BoardQuestion(ask="How many?", words=study.records),
        BoardQuestion(ask="Which columns?", words=study.columns),
        Heading(title="Quantitative analyses"),
        BoardQuestion(ask="What does it tell of one person?", words=say.outsiders),
        BoardQuestion(ask="How were batches drawn?", words=say.sampling),
        BoardQuestion(ask="What was spent?", words=say.attempts),
        Heading(title="Ethical considerations"),
        BoardQuestion(ask="Can somebody tell who took part?", words=say.membership),
        Blank(name="ethics", ask="Which board has seen it, and what did it say?"),
        Heading(title="Caveats"),
        Blank(name="caveats", ask="What should whoever uses it know besides?"),
    ),
)
