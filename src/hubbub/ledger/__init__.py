"""The privacy ledger of a data set: what was spent, what may be spent, and who has seen its head.

`row`, `ledger_key`, `noted_head` and `hash_chain` are the signed file; `entry`, `row_cost` and
`tally` what its rows say and add up to; `privacy_filter` which studies a cap lets in,
`sums_budget` which queries a notebook does; `privacy_ledger` the ledger itself; `statement` and
`witness` how others vouch for its head. This package knows mechanisms and numbers; it knows no
round and no records.
"""

from hubbub.ledger.entry import Cap, Entry, LedgerMechanism
from hubbub.ledger.hash_chain import Progress
from hubbub.ledger.head_statement import HeadStatement, Witnessed
from hubbub.ledger.privacy_filter import PrivacyFilter
from hubbub.ledger.privacy_ledger import Ledger
from hubbub.ledger.row_cost import attempts_of, entry_of, kind_of
from hubbub.ledger.sums_budget import SumsBudget
from hubbub.ledger.tally import Tally
from hubbub.ledger.witness import Witness
