"""A study whose parties run apart: each in a process of its own, with its own keys and records.

`site` is what a party has on its own disk, `seat` what it answers to a request, `conductor` what
the aggregator asks for and in which order. Between them travels one blob of bytes for each party
and phase; the engine that carries it is a function, `Phase`.
"""
