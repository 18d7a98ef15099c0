"""NVIDIA FLARE as the engine: what carries envelopes between machines, and keeps processes alive.

`collab_party` and `collab_aggregator` are what FLARE starts at the sites; `carrier` is the phase
function over its Collab calls; `sturdy` starts a worker again that died; `kit` and `job` write what
FLARE reads; `site_settings` what an administrator has set; `parent` runs its processes, and
`supervisor` keeps them up. Nothing here knows what is in an envelope.
FLARE is pinned to 2.9, because some of what is used has no promise of stability.
"""
