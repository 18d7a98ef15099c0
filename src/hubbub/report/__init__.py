"""The report: one HTML page that says what a study learned, what it cost, and who saw what.

`page` says in which order its sections stand; `markup` escapes, `number_format` rounds bounds the
safe way, `charts` and `scales` draw. It works from the plain values in a run folder: it knows no
plan, no model and no records, reads no clock, and the page loads nothing and runs nothing, so that
it can be mailed, archived and printed.
"""

from hubbub.report.adversary_words import spoken
from hubbub.report.answer_tables import answer_lines, curves_of, table_of, test_words
from hubbub.report.arrangements import Arrangement, ArrangementTable, interval
from hubbub.report.markup import tag
from hubbub.report.metric_words import in_brief, metrics_of, words_of
from hubbub.report.modes import called, promised_against
from hubbub.report.number_format import at_least, at_most
from hubbub.report.page import render
from hubbub.report.scales import bounds, linear
from hubbub.report.several_runs import ReportedRun
