"""Built-in data sources: a function that is called with a party's name and returns its `Records`.

That is the whole contract, for these sources and for the user's own: the name of a silo gives the
records of that silo and of no other, and "test" gives the public test set. A source knows `Column`
and `Records`; it must not know studies, models or the protocol.
"""

from __future__ import annotations

from hubbub.study.datasets.heart_disease import HEART_COLUMNS, HEART_SILOS, heart
from hubbub.study.datasets.images import cifar10, mnist
from hubbub.study.datasets.rand_insurance import RAND_COLUMNS, RAND_SITES, rand
from hubbub.study.datasets.spam_mails import spam

__all__ = [
    "HEART_COLUMNS",
    "HEART_SILOS",
    "RAND_COLUMNS",
    "RAND_SITES",
    "cifar10",
    "heart",
    "mnist",
    "rand",
    "spam",
]
