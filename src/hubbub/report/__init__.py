"""The report: one HTML page that says what a study learned, what it cost, and who saw what.

    markup    text that cannot end up unescaped, and the elements of the page
    figures   how numbers are written: bounds upwards, everything else short
    charts    inline SVG, drawn by hand
    modes     the federation and its baselines in words
    learned   section: the learning curve, and whether joining is worth it
    cost      section: epsilon for every adversary
    ledger    section: what the silos have signed about their ledgers
    traffic   section: seconds and bytes
    checks    section: how all of it can be checked, and what is not verifiable
    numbers   section: the plan, for those who check
    page      the order of the sections, and `render`

It works from the plain values in a run folder. It knows no plan, no model and no records, reads no
clock, and the page loads nothing and runs nothing: it can be mailed, archived and printed.
"""

from hubbub.report.markup import tag
from hubbub.report.number_format import at_least, at_most
from hubbub.report.page import render
from hubbub.report.scales import bounds, linear
