"""Estimation: how records become vectors of bounded length, and their noisy sum an answer.

Every statistic of a study is a block of one vector; `stack` divides one unit of sensitivity among
them. What a block is and how an answer is read from it is in one file per kind. Nothing here knows
silos, budgets or a network: it stands on the study's columns alone.
"""
