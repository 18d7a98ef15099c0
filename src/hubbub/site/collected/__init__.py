"""One sum whose silos come one after the other, over weeks: frames in, frames out.

A *collection* needs nobody at the same time (docs/privacy.md P30). `opening` is what all must have
been shown alike, `seeds` what a silo and a node share, `deposit` a silo's one message, `fixed_set`
whose deposits are summed, `node` what a compute node says and in which order, `collector` what the
aggregator makes of it. No file here knows a disk, a clock or a socket.
"""
