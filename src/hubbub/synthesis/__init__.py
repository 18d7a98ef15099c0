"""Synthetic records from noisy sums: what a record sends, what is chosen, the model, intervals.

Nothing in here knows silos, budgets or how a sum is made. All but what a record sends follows from
noisy sums and public numbers (docs/privacy.md P26).
"""

from hubbub.synthesis.answers import CAUTION, answers_of
from hubbub.synthesis.design import Design
from hubbub.synthesis.intervals import Combined, Share, combine
from hubbub.synthesis.keys import AskedSynthesis, synthesis_from
from hubbub.synthesis.release import SyntheticData, Table, summary_of
