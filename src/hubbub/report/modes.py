"""The federation and its baselines in words: what each is, whom it trusts, who sees what.

These sentences are the same for every study. What is measured or calculated is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

View = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way to train, in sentences and short names."""

    label: str
    meaning: str  # what happens
    trust: str  # who has to be trusted with records or exact sums
    # Against whom the epsilon holds: "", whom the plan states; None, against nobody.
    against: str | None
    beyond: str  # what the promise leaves out
    views: tuple[View, ...]  # per party: who, what it sees, what it does not see


_OUTSIDER: View = (
    "Outsider",
    "the models that are published, with the noise that they were trained with",
    "anything else",
)
_SUMS: View = ("Aggregator", "every silo's exact sum of gradients, in every step", "raw records")
_READER: View = ("Silo", "its own records; every published model", "other silos' records or sums")

FEDERATED = Mode(
    label="together (hubbub)",
    meaning="Every silo adds a share of the noise, and only the noisy sum of all is ever seen.",
    trust="nobody, as long as no more silos collude than the study allows for",
    against="",
    beyond="",
    views=(
        (
            "Silo",
            "its own records and its own noise; every published model",
            "other silos' records, batches, gradients or noise",
        ),
        (
            "Compute node (in studies that have them)",
            "which silos took part in which round",
            "records, gradients, sums",
        ),
        (
            "Aggregator",
            "masked vectors, each of which looks like random numbers; the noisy sum over all "
            "silos; the models",
            "what any one silo contributed, or any sum without noise",
        ),
        (
            "Relay (the network)",
            "sealed messages, masked vectors, sizes and times; it could add up what the aggregator "
            "adds up, and so counts as an aggregator",
            "what any one silo contributed, or any key",
        ),
        _OUTSIDER,
    ),
)

BASELINES = {
    "trusted": Mode(
        label="trusted aggregator",
        meaning="One party receives every silo's exact sum and adds the noise itself.",
        trust="the aggregator, with everything",
        against="those who see only models",
        beyond="The aggregator sees exact sums: nothing is promised against it.",
        views=(_SUMS, _READER, _OUTSIDER),
    ),
    "local-dp": Mode(
        label="local noise",
        meaning="Every silo adds all the noise that it needs before it sends anything.",
        trust="nobody",
        against="everybody but the silo itself",
        beyond="It holds however many others collude; with joint batches, as long as they own no "
        "more records than the plan says.",
        views=(
            ("Aggregator", "every silo's own sum, with that silo's full noise", "exact sums"),
            _READER,
            _OUTSIDER,
        ),
    ),
    "alone": Mode(
        label="each silo alone",
        meaning="Every silo trains a model of its own under the same budget; metrics are averages.",
        trust="nobody: nothing but a silo's own model leaves it",
        against="those who see a silo's model",
        beyond="Nothing else leaves a silo.",
        views=(("Silo", "its own records and its own model", "anything of other silos"), _OUTSIDER),
    ),
    "non-private": Mode(
        label="no privacy",
        meaning="No noise is added: what the data could give if nobody had to be protected.",
        trust="everybody who sees a sum or a model",
        against=None,
        beyond="This baseline adds no noise: nothing is promised to anybody, so there is no ε.",
        views=(
            _SUMS,
            _READER,
            ("Outsider", "models trained without noise, from which records may leak", "the sums"),
        ),
    ),
}

# In this order they are shown.
MODES = {"federated": FEDERATED, **BASELINES}
