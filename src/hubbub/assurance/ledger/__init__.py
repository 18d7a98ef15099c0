"""The privacy ledger of a data set: what was spent, what may be spent, and who has seen its head.

`row`, `ledger_key`, `noted_head` and `hash_chain` are the signed file; `entry`, `row_cost` and
`tally` what its rows say and add up to; `privacy_filter` which studies a cap lets in,
`sums_budget` which queries a notebook does; `privacy_ledger` the ledger itself; `statement` and
`witness` how others vouch for its head. This package knows mechanisms and numbers; it knows no
round and no records.
"""

from hubbub.assurance.ledger.entry import Cap, Entry, Kind
from hubbub.assurance.ledger.hash_chain import Progress
from hubbub.assurance.ledger.head_statement import HeadStatement, Witnessed
from hubbub.assurance.ledger.privacy_filter import PrivacyFilter
from hubbub.assurance.ledger.privacy_ledger import Ledger
from hubbub.assurance.ledger.row_cost import attempts_of, entry_of, kind_of
from hubbub.assurance.ledger.sums_budget import SumsBudget
from hubbub.assurance.ledger.tally import Tally
from hubbub.assurance.ledger.witness import Witness
