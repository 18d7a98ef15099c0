"""Where to look is found from few orders, and is where all of them would have said."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.privacy.laws import ExchangedRecord, Law, Removal, Reversed
from hubbub.core.privacy.transform import (
    ORDERS,
    _chernoff,
    _cumulants_of,
    _is_close,
    coarse_law_of,
    log_kernel_peak,
)

LAWS: dict[str, Law] = {
    "much noise": Removal(rate=0.2, shift=1e-6),
    "usual": Removal(rate=0.2, shift=0.1),
    "reversed": Reversed(law=Removal(rate=0.2, shift=0.1)),
    "rare large losses": Removal(rate=1e-5, shift=2.0),
    "little noise": Removal(rate=0.9, shift=30.0),
    "exchanged": ExchangedRecord(rate=0.3, shift=0.5),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("count", [1, 10_000])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
def test_few_orders_find_what_all_of_them_say(name: str, count: int, delta: float) -> None:
    few = _chernoff([coarse_law_of(LAWS[name], count)], delta)
    whole = coarse_law_of(LAWS[name], count).cumulants(ORDERS)
    every = (whole - np.log(delta) + log_kernel_peak(ORDERS)) / ORDERS
    seen = np.isfinite(few)
    assert np.array_equal(few[seen], every[seen])
    assert few.min() == every.min()
    assert np.argmax(_is_close(few, ORDERS)) == np.argmax(_is_close(every, ORDERS))


def test_what_is_left_out_of_a_moment_is_zero() -> None:
    one = coarse_law_of(LAWS["usual"], 1)
    exponent = np.outer(ORDERS, one.loss) + np.log(one.mass)
    top = exponent.max(axis=1)
    plain = top + np.log(np.exp(exponent - top[:, None]).sum(axis=1))
    assert np.array_equal(_cumulants_of(one.loss, one.mass, ORDERS), plain)
