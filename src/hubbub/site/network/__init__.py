"""A study whose parties run apart: each in a process of its own, with its own keys and records.

`party_folder` is what a party has on its own disk, `endpoint` what it answers to a request,
`requests` how the aggregator asks, `coordinator` how it waits for parties that come and go. The
order of the protocol is in `core.session`. Between them travels one blob of bytes for each party
and phase; the engine that carries it is a function, `Phase`, which `nats/` makes of a line to a
relay, and `envelope` says how large each blob may be.
"""
