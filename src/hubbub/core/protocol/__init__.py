"""The protocol as pure state machines: frames in, frames out; no clock, disk, socket or torch.

`primitives/` is what every message is made of, `agreement/` sets a session up, `round/` is one sum,
`projection/` the random projections, `token_lists/` the mixnet. The order in which all of it is
asked for is in `hubbub.core.session`.
"""
