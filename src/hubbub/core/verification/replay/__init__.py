"""Verifying a run from its folder: everything that can be done again is done again.

`checking` is the whole of `hubbub verify DIR`: it looks at bytes and the metrics' epsilon,
`replayed_session` plays a session, `course` follows the model over all of them, from the first to
the last. A run that goes on after a crash plays its sessions too, for sums whose steps are lost.
"""
