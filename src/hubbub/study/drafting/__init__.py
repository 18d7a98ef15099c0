"""From files of records, however messy, to a first study file, and from a study to all faults.

Whatever is made here stays on the machine where the files lie. `hubbub init` drafts a study from
cells, so its bounds and spellings are values taken from records until people have agreed on them or
replaced them; `hubbub check` lists what a run would refuse. A run itself uses neither.
"""

from hubbub.study.drafting.asked_query import AskedQuery
from hubbub.study.drafting.draft_text import draft_text
from hubbub.study.drafting.likely_namesakes import likely_namesakes
from hubbub.study.drafting.mapping_draft import mapping_draft
from hubbub.study.drafting.open_questions import Answers, open_questions, with_time
from hubbub.study.drafting.question import Question
from hubbub.study.drafting.raw_table import Fault, RawTable, read_raw
from hubbub.study.drafting.study_draft import EPSILON, Draft, draft, with_tidy
from hubbub.study.drafting.survey import Survey, surveyed
from hubbub.study.drafting.table_check import all_faults, checked, read_site
from hubbub.study.drafting.tidy_copy import write_tidy
