"""Joint batches without anybody knowing whose records are in them: the paper's Algorithm 2.

    layers     HPKE layers around tokens, and the names of forms
    lists      what is published, and the finished list
    venue      where messages belong, and the comparison of what all saw
    mixer      one silo's side, a pure state machine
    verdict    who lied, once a list is opened
    creation   all parties in one process: the protocol to read
    workshop   all cores at work (worker: one of them)
    storage    the state between steps
    schemes    from a list and a seed to a batch

Knows counts of records and nothing of the records themselves, no noise and no accounting.
docs/sampling.md describes the protocol and what it does and does not promise.
"""

from hubbub.protocol.token_lists.batch_schemes import (
    Scheme,
    chosen_records,
    partition,
    without_replacement,
)
from hubbub.protocol.token_lists.creation import Tokens, create_tokens
from hubbub.protocol.token_lists.kept_state import Folder, Store
from hubbub.protocol.token_lists.mixer import Mixer
from hubbub.protocol.token_lists.token_list import Owned, Publication, TokenList
from hubbub.protocol.token_lists.verdict import Evidence, Verdict, verdict

__all__ = [
    "Evidence",
    "Folder",
    "Mixer",
    "Owned",
    "Publication",
    "Scheme",
    "Store",
    "TokenList",
    "Tokens",
    "Verdict",
    "chosen_records",
    "create_tokens",
    "partition",
    "verdict",
    "without_replacement",
]
