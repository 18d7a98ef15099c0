"""Verifying a run from its folder: everything that can be done again is done again.

`checking` is the whole of `hubbub verify DIR`; `damage` looks at bytes, `replay` plays a session,
`course` follows the model over all of them, `model` makes the first one again and opens the last,
`rows` holds the metrics against the account.
"""

from hubbub.assurance.verification.checking import steps_of, verify
