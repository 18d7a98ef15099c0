"""An annex for a data protection impact assessment, in the order of GDPR Article 35(7)."""

from __future__ import annotations

from hubbub.desk.report.dossier import statements as say
from hubbub.desk.report.dossier import statements as study
from hubbub.desk.report.dossier.dossier_parts import Blank, BoardQuestion, Chapter, Heading

CHAPTER = Chapter(
    title="Annex for a data protection impact assessment",
    source="In the order of Article 35(7) of Regulation (EU) 2016/679. It is an annex: the "
    "assessment is the controller's, who also says whether one is due and what it concludes.",
    parts=(
        Heading(title="(a) The processing and its purposes"),
        Blank(name="controller", ask="Who is the controller, or who are the joint controllers?"),
        Blank(name="processors", ask="Who processes on their behalf, the aggregator included?"),
        Blank(name="purpose", ask="What is the processing for, and whose interest is it?"),
        Blank(name="legal-basis", ask="On which legal basis, Article 9 included?"),
        BoardQuestion(ask="Which study is this?", words=study.study),
        BoardQuestion(ask="What is done with the records?", words=study.what_is_done),
        BoardQuestion(ask="Which statistics are asked?", words=study.questions),
        BoardQuestion(ask="Who takes part?", words=study.parties),
        BoardQuestion(ask="How many records are there?", words=study.records),
        BoardQuestion(ask="Which columns are read?", words=study.columns),
        Blank(name="data-subjects", ask="Whose records are these, and are there children?"),
        BoardQuestion(ask="What leaves a silo?", words=study.what_leaves),
        BoardQuestion(ask="Does code of others run at a silo?", words=study.code),
        Blank(name="retention", ask="How long are records, models, ledgers and messages kept?"),
        Blank(name="transfers", ask="Does anything go to a third country?"),
        Heading(title="(b) Necessity and proportionality"),
        Blank(name="necessity", ask="Why is it needed, and why would less not do?"),
        Blank(name="rights", ask="How are people told, and how can they object or withdraw?"),
        BoardQuestion(ask="Is anything else asked of the records?", words=say.beside),
        BoardQuestion(ask="Is there a limit over all studies?", words=say.cap),
        Heading(title="(c) Risks to the people"),
        BoardQuestion(ask="What is promised, and against whom?", words=say.against_stated),
        BoardQuestion(ask="What does that mean for one person?", words=say.odds),
        BoardQuestion(ask="Can somebody tell who took part?", words=say.membership),
        BoardQuestion(ask="What can readers of the result learn?", words=say.outsiders),
        BoardQuestion(ask="What if more parties collude?", words=say.beyond),
        BoardQuestion(ask="Who is protected: a record or a person?", words=say.unit),
        BoardQuestion(ask="What have these records spent in all?", words=say.in_all),
        Blank(
            name="other-risks",
            ask="Which risks does epsilon not measure (discrimination, "
            "a wrong prediction, a breach at a silo)?",
        ),
        Heading(title="(d) Measures"),
        BoardQuestion(ask="Who adds the noise, and how much?", words=say.noise),
        BoardQuestion(ask="How is one person's part bounded?", words=say.clip),
        BoardQuestion(ask="Was more spent than planned?", words=say.attempts),
        BoardQuestion(ask="What do the silos' own ledgers say?", words=say.ledgers),
        BoardQuestion(ask="Does the result follow from the messages?", words=say.replayed),
        BoardQuestion(ask="Are messages signed?", words=say.authenticity),
        BoardQuestion(ask="Did the parties run apart?", words=say.apart),
        BoardQuestion(
            ask="Are disks, backups and accounts at the silos protected?", words=say.never
        ),
        Blank(name="site-measures", ask="What protects the machines at each silo?"),
        Blank(
            name="consultation",
            ask="What did the data protection officer advise, and what did "
            "the people concerned or their representatives say?",
        ),
        Blank(name="residual-risk", ask="Which risk is left, who accepts it, and when?"),
    ),
)
