"""A ledger's entries as an event of Google's dp-accounting, for those who count with it.

The form is what `DpEvent.to_named_tuple` gives, with tuples as objects: every event has its
`module_name`, `class_name` and fields. Neighbours are those of add-remove, dp-accounting's
`ADD_OR_REMOVE_ONE`. What that library has no event for is refused by name: nothing is left out, and
nothing is put in a cheaper event's place. Certificates (docs/privacy.md P4 to P6) are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import UserError
from hubbub.core.ledger.entry import LedgerMechanism

_MODULE = "dp_accounting.dp_event"


def event_of(counts: Mapping[LedgerMechanism, int]) -> dict[str, Any]:
    """All entries, by kind, as one composed event.

    Raises:
        UserError: a kind is none of dp-accounting's, or not all have the same unit.
    """
    if len({kind.unit for kind in counts}) > 1:
        raise UserError(
            "expected entries of one unit, got some of records and some of patients; export the "
            "entries or the curve instead"
        )
    return _event("ComposedDpEvent", events=[_of(kind, n) for kind, n in sorted(counts.items())])


def _of(kind: LedgerMechanism, count: int) -> dict[str, Any]:
    """So many entries of a kind."""
    if unlike := _unlike(kind):
        raise UserError(
            f"expected entries that dp-accounting has an event for, got {unlike}; export "
            "the entries or the curve instead"
        )
    one = _event("GaussianDpEvent", noise_multiplier=kind.noise_multiplier)
    if kind.sampling == "poisson" and kind.sample_rate < 1:
        one = _event("PoissonSampledDpEvent", sampling_probability=kind.sample_rate, event=one)
    return _event("SelfComposedDpEvent", event=one, count=count)


def _unlike(kind: LedgerMechanism) -> str:
    """What of a kind dp-accounting cannot say under add-remove; empty if nothing."""
    if kind.projection and kind.projection != "layers":
        return f"a {kind.projection} projection"
    if kind.sampling == "without-replacement" or kind.records:
        return "batches drawn without replacement, where the number of records is in the view"
    return ""


def _event(name: str, **fields: Any) -> dict[str, Any]:
    """One event."""
    return {"module_name": _MODULE, "class_name": name, **fields}
