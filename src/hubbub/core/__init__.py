"""What the guarantee rests on: study, plan, accounts, secure sum, ledger, evidence, runs.

It stands alone, with numpy, scipy and cryptography. It knows no statistic, model, network or page:
what is asked, where records come from and what is shown of a run register themselves, under the
entry points `hubbub.asks`, `hubbub.sources`, `hubbub.transports`, `hubbub.renderers` and others.
"""
