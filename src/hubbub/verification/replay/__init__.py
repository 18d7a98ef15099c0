"""Verifying a run from its folder: everything that can be done again is done again.

`checking` is the whole of `hubbub verify DIR`; `damage` looks at bytes and the metrics' epsilon,
`replay` plays a session, `model_course` follows the model over all of them, from the first to the
last.
"""

from hubbub.verification.replay.checking import steps_of, verify
