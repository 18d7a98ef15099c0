"""A ledger's entries as an event of Google's dp-accounting, for those who count with it.

The form is what `DpEvent.to_named_tuple` gives, with tuples as objects. Neighbours are those of
add-remove. What that library has no event for is refused by name: nothing is left out, or put in a
cheaper event's place. Certificates (docs/privacy.md P4 to P6) are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import UserError
from hubbub.core.ledger.entry import LedgerMechanism


def event_of(counts: Mapping[LedgerMechanism, int]) -> dict[str, Any]:
    """All entries, by kind, as one composed event.

    UserError: a kind is none of dp-accounting's, or not all have the same unit.
    """
    fault = ""
    if len({kind.unit for kind in counts}) > 1:
        fault = "of one unit, got some of records and some of patients"
    for kind in sorted(counts):
        # P8 (6): by layers, records are clipped after the projection, and the step is one without.
        if kind.projection not in ("", "layers"):
            fault = fault or f"{_HAS_EVENT} a {kind.projection} projection"
        if kind.sampling == "without-replacement" or kind.records:
            fault = fault or (
                f"{_HAS_EVENT} batches drawn without replacement, where the number of records is "
                "in the view"
            )
    if fault:
        raise UserError(f"expected entries {fault}; export the entries or the curve instead")
    events = []
    for kind, count in sorted(counts.items()):
        step = _event("GaussianDpEvent", noise_multiplier=kind.noise_multiplier)
        if kind.sampling == "poisson" and kind.sample_rate < 1:
            rate = kind.sample_rate
            step = _event("PoissonSampledDpEvent", sampling_probability=rate, event=step)
        events.append(_event("SelfComposedDpEvent", event=step, count=count))
    return _event("ComposedDpEvent", events=events)


_HAS_EVENT = "that dp-accounting has an event for, got"


def _event(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": "dp_accounting.dp_event", "class_name": name, **fields}
