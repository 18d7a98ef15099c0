"""The federation and its baselines in words: what each is, whom it trusts, who sees what.

These sentences are the same for every study. What is measured or calculated is not here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hubbub.core.planning.plan_rows import STATED


@dataclass(frozen=True)
class View:
    """What one party sees in an arrangement."""

    role: str  # "silo", "node", "relay", "aggregator" or "outsider"
    brief: str  # what it sees or does, in a few plain words
    # sees, unseen: the same in full, and what it does not see
    sees: str
    unseen: str
    # the adversary of the plan's table whose epsilon holds against it; `STATED`, or None if nothing
    # is promised against it
    against: str | None = STATED

    @property
    def party(self) -> str:
        """Its name for people."""
        return "Compute node" if self.role == "node" else self.role.capitalize()


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way to train, in sentences and short names."""

    label: str
    meaning: str  # what happens
    trust: str  # who has to be trusted with records or exact sums
    beyond: str  # what the promise leaves out
    sent: str  # what leaves a silo, in a few words
    views: tuple[View, ...]


_SILO = View(
    "silo",
    "Each keeps its own records and sees the published results.",
    "its own records; every published result",
    "other silos' records or sums",
)
_EXACT = View(
    "aggregator",
    "Adds up, and sees every silo's exact sum.",
    "every silo's exact sum of gradients, in every step",
    "raw records",
    against=None,
)
_OUTSIDER = View(
    "outsider",
    "Anybody who has the published results, and nothing else.",
    "the published results, made with noise",
    "anything else",
)

FEDERATED = Mode(
    label="together (hubbub)",
    meaning="Every silo adds a share of the noise, and only the noisy sum of all is ever seen.",
    trust="nobody, as long as no more silos collude than the study allows",
    beyond="",
    sent="numbers with noise that look random",
    views=(
        View(
            "silo",
            _SILO.brief,
            "its own records and its own noise; every published result",
            "other silos' records, batches, sums or noise",
            against="one silo",
        ),
        View(
            "relay",
            "The network. Carries sealed messages; it could compute no more than the aggregator.",
            "as a server in the network: sealed messages, masked vectors, sizes and times; it "
            "could compute what the aggregator computes, and so counts as an aggregator",
            "what any one silo contributed, or any key",
            against="aggregator",
        ),
        View(
            "node",
            "Take the masks off the sum. They hold no records.",
            "which silos took part in which round",
            "records, vectors, sums",
            against="aggregator and all compute nodes but one",
        ),
        View(
            "aggregator",
            "Adds up, and sees only the sum of all silos, with noise.",
            "masked vectors, each of which looks like random numbers; the noisy sum over all "
            "silos; the results",
            "what any one silo contributed, or any sum without noise",
            against="aggregator",
        ),
        replace(_OUTSIDER, against="outsider (published results)"),
    ),
)

BASELINES = {
    "trusted": Mode(
        label="trusted aggregator",
        meaning="One party receives every silo's exact sum and adds the noise itself.",
        trust="the aggregator, with everything",
        beyond="The aggregator sees exact sums: nothing is guaranteed against it.",
        sent="exact sums, without noise",
        views=(_SILO, replace(_EXACT, brief=f"{_EXACT.brief} It adds the noise."), _OUTSIDER),
    ),
    "local-dp": Mode(
        label="local noise",
        meaning="Every silo adds all the noise it needs before it sends anything.",
        trust="nobody",
        beyond="This holds however many others collude; with joint batches, as long as they own "
        "no more records than the plan says.",
        sent="sums, each with all of its silo's noise",
        views=(
            _SILO,
            View(
                "aggregator",
                "Adds up, and sees every silo's noisy sum.",
                "every silo's own sum, with that silo's full noise",
                "exact sums",
            ),
            _OUTSIDER,
        ),
    ),
    "alone": Mode(
        label="each silo alone",
        meaning="Every silo trains its own model at the same ε; scores are averages.",
        trust="nobody: nothing but a silo's own model leaves it",
        beyond="Nothing else leaves a silo.",
        sent="each silo's own model",
        views=(
            View(
                "silo",
                "Each keeps its own records, and trains its own model.",
                "its own records and its own model",
                "anything of other silos",
            ),
            _OUTSIDER,
        ),
    ),
    "non-private": Mode(
        label="no privacy",
        meaning="No noise is added: what the data could give if nobody needed protection.",
        trust="everybody who sees a sum or a model",
        beyond="This baseline adds no noise: it guarantees nothing to anybody, so there is no ε.",
        sent="exact sums, without noise",
        views=(
            replace(_SILO, against=None),
            _EXACT,
            View(
                "outsider",
                "Anybody who has the models; they may reveal records.",
                "models trained without noise, which may reveal records",
                "the sums",
                against=None,
            ),
        ),
    ),
}

# In this order they are shown.
MODES = {"federated": FEDERATED, **BASELINES}


def called(name: str) -> str:
    """The label of an arrangement, or the name itself if it is none of these."""
    return MODES[name].label if name in MODES else name
