"""Secure processing under the European Health Data Space, as far as a run speaks of it."""

from __future__ import annotations

from hubbub.desk.report.dossier import statements as say
from hubbub.desk.report.dossier import statements as study
from hubbub.desk.report.dossier.dossier_parts import Blank, BoardQuestion, Chapter, Heading

CHAPTER = Chapter(
    title="Secure processing (EHDS)",
    source="Along Article 73 of Regulation (EU) 2025/327 on secure processing environments, point "
    "by point, in our words. Whether a silo is or needs such an environment is for the health data "
    "access body and the holder of the data to say.",
    parts=(
        Blank(
            name="data-permit",
            ask="Which data permit (Article 68) or health data request (Article 69) is this under, "
            "for which purpose of Article 53?",
        ),
        Heading(title="Who has access: 73(1)(a)"),
        BoardQuestion(ask="Which parties took part, under which keys?", words=say.authenticity),
        BoardQuestion(ask="Are they the natural persons that the permit lists?", words=say.never),
        Blank(
            name="persons",
            ask="Who are the authorised persons at each party, and how do they log in?",
        ),
        Heading(title="Reading, copying, modifying, removing: 73(1)(b)"),
        BoardQuestion(ask="What goes out of a silo?", words=study.what_leaves),
        BoardQuestion(ask="Who could read it?", words=say.beyond),
        BoardQuestion(ask="Does foreign code run inside?", words=study.code),
        Heading(title="Putting in, inspecting, deleting: 73(1)(c)"),
        BoardQuestion(ask="Are those who may do it few, and known by name?", words=say.never),
        Blank(name="custodians", ask="Who may put records in, inspect, change or delete them?"),
        Heading(title="Only what the permit covers: 73(1)(d)"),
        BoardQuestion(ask="Which data does the study read?", words=study.columns),
        BoardQuestion(ask="Is anything else asked?", words=say.beside),
        Heading(title="Logs: 73(1)(e)"),
        BoardQuestion(ask="What was logged of the processing?", words=say.authenticity),
        BoardQuestion(ask="Does each silo have its own record of it?", words=say.ledgers),
        BoardQuestion(
            ask="Is access to the machines logged, for a year at least?", words=say.never
        ),
        Blank(name="logs", ask="Where are access logs kept, for how long, and who reads them?"),
        Heading(title="Monitoring: 73(1)(f)"),
        BoardQuestion(ask="Does somebody watch that the measures are kept?", words=say.never),
        Blank(name="monitoring", ask="Who watches the measures, and what do they do at a breach?"),
        Heading(title="What leaves the environment: 73(2)"),
        BoardQuestion(ask="What is given out?", words=study.what_is_done),
        BoardQuestion(ask="Which statistics are given out?", words=study.questions),
        BoardQuestion(ask="What does it tell of one person?", words=say.outsiders),
        BoardQuestion(ask="Is what is given out what the sums gave?", words=say.replayed),
        Blank(
            name="output-check",
            ask="Who checked that what is downloaded is not personal electronic health data?",
        ),
        Heading(title="Audits: 73(3)"),
        BoardQuestion(ask="Did the parties run apart?", words=say.apart),
        BoardQuestion(ask="Were the security measures audited?", words=say.never),
        Blank(name="security-audit", ask="Who audits the environment, and when was the last time?"),
    ),
)
