"""Estimation: how records become vectors of bounded length, and their noisy sum an answer.

Every statistic of a study is a block of one vector; `stack` divides one unit of sensitivity among
them. What a block is and how an answer is read from it is in one file per kind. Nothing here knows
silos, budgets or a network: it stands on the study's columns alone.
"""

import lazy_loader

# What a package of one's own derives statistics from, and how it makes them known.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"kinds": ["register"], "statistic": ["Iterated", "OneSum"]}
)
