"""The report: one HTML page that says what a study learned, what it cost, and who saw what.

`page` says in which order its sections stand; `markup` escapes, and `charts` draws. It works from
the plain values in a run folder: it knows no plan, no model and no records, reads no clock, and the
page loads nothing and runs nothing, so that it can be mailed, archived and printed.
"""
