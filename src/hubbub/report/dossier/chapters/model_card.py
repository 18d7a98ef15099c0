"""A model card, after Mitchell et al., “Model Cards for Model Reporting” (2019)."""

from __future__ import annotations

from hubbub.report.dossier import statements as say
from hubbub.report.dossier.parts import Blank, Chapter, Heading, Question

CHAPTER = Chapter(
    title="Model card",
    source="In the sections of Mitchell et al., “Model Cards for Model Reporting” (2019).",
    parts=(
        Heading(title="Model details"),
        Question(ask="Which model is it?", words=say.model_digest),
        Question(ask="What kind?", words=say.what_is_done),
        Question(ask="By which study?", words=say.study),
        Question(ask="With which software?", words=say.software),
        Blank(name="contact", ask="Who answers questions about it?"),
        Blank(name="model-licence", ask="Under which licence may it be used?"),
        Heading(title="Intended use"),
        Blank(name="intended-use", ask="Who is to use it, and for what?"),
        Blank(name="other-uses", ask="For what is it not to be used?"),
        Heading(title="Factors"),
        Blank(name="groups", ask="Which groups, instruments and settings matter?"),
        Heading(title="Metrics and evaluation data"),
        Question(ask="How well does it do on public test records?", words=say.never),
        Question(
            ask="Was it evaluated on held-back records in the same epsilon?", words=say.beside
        ),
        Blank(
            name="evaluation",
            ask="How well does it do, on which records, and for whom does it fail?",
        ),
        Heading(title="Training data"),
        Question(ask="Whose records?", words=say.parties),
        Question(ask="How many?", words=say.records),
        Question(ask="Which columns?", words=say.columns),
        Heading(title="Quantitative analyses"),
        Question(ask="What does it tell of one person?", words=say.outsiders),
        Question(ask="How were batches drawn?", words=say.sampling),
        Question(ask="What was spent?", words=say.attempts),
        Heading(title="Ethical considerations"),
        Question(ask="Can somebody tell who took part?", words=say.membership),
        Blank(name="ethics", ask="Which board has seen it, and what did it say?"),
        Heading(title="Caveats"),
        Blank(name="caveats", ask="What should whoever uses it know besides?"),
    ),
)
