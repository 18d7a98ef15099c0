"""The report: one HTML page that says what a study learned, what it cost, and who saw what.

It works from the plain values in a run's folder, and reads no clock; the page loads and runs
nothing, so that it can be mailed, archived and printed.
"""
