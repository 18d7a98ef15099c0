"""What the words on the page mean, for somebody who reads such a page for the first time."""

from __future__ import annotations

from hubbub.desk.report import markup

_WORDS = {
    "silo": "a place that keeps records of its own, such as a hospital",
    "record": "one line of data about one person",
    "model": "what is learned: a formula that makes a prediction from a record",
    "step": "one small improvement of the model; a training has many",
    "attempt": "one try at a step; a try that fails has its cost, too",
    "gradient": "the direction in which a record would change the model",
    "noise": "random numbers that are added, so that no single record can be made out",
    "mask": "random numbers that hide what one silo sends, and cancel when all are added up",
    "aggregator": "the party that adds up what the silos send and improves the model",
    "compute node": "a party without data that helps to take the masks off the sum",
    "relay": "the server in the network through which messages go",
    "adversary": "somebody who tries to learn about a record from all that they can see",
    "collude": "to tell an adversary, in secret, all that one knows",
    "ε (epsilon)": "how much an adversary can learn about one record: 0 is nothing, below 1 very "
    "little, above 8 much",
    "δ (delta)": "a very small probability with which the promise of ε need not hold",
    "T": "how many silos may collude with the aggregator before the promise gets weaker",
    "baseline": "the same study in another arrangement, to compare with",
    "ledger": "a silo's own book of all that was ever spent on its records",
    "signed": "confirmed by a party with its secret key, so that nobody else can have written it",
    "evidence": "the signed file of what a run claims, which anybody can check",
    "audit": "a trial attack on the study with made-up records",
}


def meanings() -> markup.Html:
    """The section."""
    pairs = [
        markup.tag("div", markup.tag("dt", word), markup.tag("dd", meaning))
        for word, meaning in _WORDS.items()
    ]
    return markup.section("Words on this page", markup.tag("dl", *pairs, class_="meanings"))
