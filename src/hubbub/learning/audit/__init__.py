"""An empirical lower bound on epsilon: canaries through whole rounds, and a rule that finds them.

A proof says how much a study tells at most; this says how much its code is seen to tell, at least.
`canaries.py` makes records that are easy to find and plays runs with and without them, `rules.py`
guesses, and guesses become a bound in `privacy/canary_guesses.py`. It finds mistakes, and is no
guarantee (docs/privacy.md P18).
"""
