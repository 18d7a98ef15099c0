"""One sum whose silos come one after the other, over weeks (docs/privacy.md P30).

A *collection* needs nobody at the same time. Frames in, frames out, with no clock or socket:
`collection_frames` (what all must have been shown alike, a silo's one message, the set that is
summed), `node` (what a compute node says, in which order), `collector` (what the aggregator makes
of it and keeps on its disk, and a verifier). Among machines: `collection_request` (what a party is
asked, which studies can be collected), `party_sides` (what it answers), `collection_run` (the
aggregator, from a study's folder to its evidence).
"""
