"""P13: what float64 may err by in a composed law is charged, and is more than it errs by."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.privacy import composition, transform
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.composition import ComposedLaw
from hubbub.core.privacy.discretise import GridLaw


def test_p13_the_closed_form_errs_by_less_than_is_allowed_to_it() -> None:
    import mpmath as mp

    shift, epsilon = 89.24685581736642, 4453.42872808428  # float64 errs by 1.3e-14 there
    with mp.workdps(60):
        m, e = mp.mpf(shift), mp.mpf(epsilon)
        exact = mp.ncdf(m / 2 - e / m) - mp.e**e * mp.ncdf(-m / 2 - e / m)
        bound = Composition._closed(shift, epsilon)
        assert bound.lower < exact < bound.upper


@pytest.mark.parametrize("order", [0.3, 1.0, 10.0, 300.0])
def test_p13_the_kernel_is_no_longer_than_is_charged_wherever_the_grid_lies(order: float) -> None:
    peak = np.log1p(1 / order)
    for step in (peak / 50, peak, 2 * peak, 9 * peak):
        for first in (*np.linspace(0.02, 1.0, 50) * step, min(peak, step)):
            points = first + step * np.arange(1000)
            true = np.linalg.norm(np.exp(-order * points) * -np.expm1(-points))
            assert true <= composition._kernel_norm(order, step, points.size)


def test_p13_a_tilted_mass_errs_by_less_than_is_charged() -> None:
    cuts, mass = np.arange(0, 4001, 400), 10.0 ** -np.linspace(0, 300, 11)
    law = GridLaw(step=0.1, offset=0.03, cuts=cuts, mass=mass, infinite=0.0, doubt=0.0)
    order, wide = 1.7, np.longdouble
    exponents = np.log(mass.astype(wide)) + wide(order) * law.losses.astype(wide)
    exact = np.exp(exponents - exponents.max())
    exact /= exact.sum()
    moment = law.log_moment(order)
    seen, charged = exact > 1e-300, composition._tilting_error(law, order, moment)
    found = composition._tilted(law, order, moment)
    assert np.abs(found[seen] / exact[seen] - 1).max() <= charged < 1e-11
    # The size of the terms is what makes it large.
    assert charged > 4 * 2.0**-53 * (order * float(law.losses.max()) - np.log(mass.min()))


ULP = 2.0**-53


@pytest.mark.parametrize("count", [10, 1000])
def test_p13_a_power_may_err_by_so_many_times_what_its_base_may(count: int) -> None:
    cuts, mass = np.arange(-3, 4), np.array([1, 6, 15, 20, 15, 6, 1]) / 64

    def relative(power: int) -> float:
        product = transform.PowerProduct(1 << 10)
        product.multiply(cuts, mass, power)
        value, error = product.result()
        return float(error[3] / abs(value[3])) - transform.error_of_one(1 << 10)

    assert relative(2 * count) == pytest.approx(2 * relative(count), rel=1e-3, abs=0)
    assert relative(count) > count * ULP * abs(1 - np.exp(2j * np.pi * 3 / 1024))


def test_p13_a_window_may_err_by_the_norm_of_what_its_transform_may() -> None:
    mass = np.array([1, 6, 15, 20, 15, 6, 1]) / 64
    law = GridLaw(step=0.1, offset=0.0, cuts=np.arange(-3, 4), mass=mass, infinite=0.0, doubt=0.0)
    _, _, error = composition._spectrum([((law, 50), law.log_moment(0.0))], 0.0, 1 << 10)
    of_the_first = 50 * 4 * ULP * 10  # coefficient alone, which is 1
    assert error > of_the_first * np.sqrt(2 / 1024)


def test_p13_what_is_far_out_and_a_logarithm_may_err() -> None:
    places, mass = np.array([-400, 0, 400]), np.array([1e-4, 1 - 2e-4, 1e-4])
    assert transform.error_of_one(1 << 10) == 4 * ULP * 10
    _, error = transform._less_one(places, mass, 1.5e-4, 1 << 10)
    assert error[0] >= 2 * (4 * ULP * 10) * 2e-4
    _, more = transform._logarithm(np.array([-0.3 + 0.1j, -0.9 + 0.0j]), np.array([1e-20, 0.0]))
    assert np.all(more >= np.array([1e-20 + 16 * ULP * 0.31, 8 * ULP]))


@pytest.mark.parametrize("sign", [1, -1])
def test_p13_the_running_sums_of_a_window_may_err(sign: int) -> None:
    size = 1 << 20
    tail = np.full(size, 0.5)
    law = ComposedLaw(
        sign=sign,
        order=0.0,
        centre=0.0,
        first=0.0,
        step=1.0,
        tail=tail,
        tail_discounted=0 * tail,
        log_scale=0.0,
        allowance=0.0,
        infinite=0.0,
        doubt=0.0,
    )
    assert sign * (law.delta(0.5) - 0.5) >= size * ULP * 0.5
