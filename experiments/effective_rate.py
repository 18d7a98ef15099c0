"""How far malicious records raise the sampling rate that counts, without replacement.

    python -m experiments.effective_rate [--small]

The paper's figure "SWOR_sampling_fracs": who owns records sees how many of them are in the joint
batch, and so how many honest ones are. The paper counts a quantile of b' / n_honest, which is
exceeded with probability "slack" in one step. Here the exact mixture over b' is accounted for; it
is no single rate, so what is drawn is the rate with nobody malicious that costs the same epsilon.
The epsilon of the quantile's way, its slack paid in every step, is in the table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scipy.optimize import brentq

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Row, Table
from hubbub.core.privacy.dominating_pairs import honest_rate

RECORDS, NOISE, DELTA = 50_000, 2.0, 1e-5
STEPS, SMALL_STEPS = 1250, 20
BATCHES, SLACKS = (500, 2_500), (1e-15, 1e-10, 1e-5)
MALICIOUS = (0, 500, 2_500, 5_000, 7_500, 10_000, 12_500, 15_000, 20_000, 25_000)
SMALL_MALICIOUS = (0, 25_000)
ACCOUNTED_SLACK = 1e-10  # 1e-5 in every step would be more than all of delta

KEY = ("batch", "malicious")
COLUMNS = (*KEY, "rate_worst", *(f"rate_slack_{slack:g}" for slack in SLACKS), "rate_mixture")
COLUMNS += ("epsilon_mixture", "epsilon_slack_1e-10", "noise_multiplier", "steps", "delta")


def measured(batch: int, malicious: int, steps: int) -> dict[str, object]:
    """All rates of one batch, and what two of them cost."""
    mixture = mixture_epsilon(batch, malicious, steps)
    worst = quantile_rate(RECORDS, batch, malicious, 0.0)
    quantile = hubbub.malicious_epsilon(
        records=RECORDS,
        batch=batch,
        malicious=malicious,
        noise_multiplier=NOISE,
        steps=steps,
        delta=DELTA,
        slack=ACCOUNTED_SLACK,
    ).upper
    rates = {
        f"rate_slack_{slack:g}": quantile_rate(RECORDS, batch, malicious, slack) for slack in SLACKS
    }
    return {
        "rate_worst": worst,
        **rates,
        "rate_mixture": equal_rate(mixture, batch / RECORDS, worst, steps=steps),
        "epsilon_mixture": mixture,
        "epsilon_slack_1e-10": quantile,
        "noise_multiplier": NOISE,
        "steps": steps,
        "delta": DELTA,
    }


def mixture_epsilon(batch: int, malicious: int, steps: int) -> float:
    """Certified epsilon of the exact mixture."""
    return hubbub.malicious_epsilon(
        records=RECORDS,
        batch=batch,
        malicious=malicious,
        noise_multiplier=NOISE,
        steps=steps,
        delta=DELTA,
    ).upper


def quantile_rate(records: int, batch: int, malicious: int, slack: float) -> float:
    """The paper's effective rate; without slack all of the batch counts as honest."""
    honest = records - malicious
    if not slack:
        return min(batch, honest) / honest
    return honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)


def equal_rate(epsilon: float, least: float, most: float, *, steps: int) -> float:
    """The rate from `least` to `most` that costs this epsilon with nobody malicious."""

    def alone(rate: float) -> float:
        return hubbub.epsilon(
            noise_multiplier=NOISE,
            sample_rate=rate,
            steps=steps,
            delta=DELTA,
            relation="substitute",
            sampling="without-replacement",
        ).upper

    if alone(least) >= epsilon:
        return least
    if alone(most) <= epsilon:
        return most
    return float(brentq(lambda rate: alone(rate) - epsilon, least, most, rtol=1e-4))


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for each batch."""
    from experiments.drawing import LOOKS, panels, save

    columns = {
        "rate_worst": "slack 0: the whole batch counts as honest",
        **{f"rate_slack_{slack:g}": f"quantile, slack {slack:g} in a step" for slack in SLACKS},
        "rate_mixture": "exact mixture, rate of equal epsilon",
    }
    figure, axes = panels(len(BATCHES))
    for panel, batch in zip(axes, BATCHES, strict=True):
        mine = sorted(
            (row for row in rows if int(row["batch"]) == batch), key=lambda r: int(r["malicious"])
        )
        share = [100 * int(row["malicious"]) / RECORDS for row in mine]
        for look, (column, name) in zip((1, 0, 2, 3, 5), columns.items(), strict=True):
            colour, marker = LOOKS[look]
            rates = [float(row[column]) for row in mine]
            panel.plot(share, rates, color=colour, marker=marker, markersize=5, label=name)
        panel.set_title(f"batch {batch:,} of {RECORDS:,} records", fontsize=11)
        panel.set_xlabel("malicious records, % of all")
        panel.set_ylabel("effective sampling rate")
    axes[0].legend(fontsize=9)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    steps = SMALL_STEPS if options.small else STEPS
    owned = SMALL_MALICIOUS if options.small else MALICIOUS
    points = [(batch, malicious) for batch in BATCHES for malicious in owned]
    table = Table(path=options.out / "effective_rate.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(*points[number], steps),
        module="experiments.effective_rate",
        arguments=arguments,
    )
    draw(table.rows(), options.out / "effective_rate.png")


if __name__ == "__main__":
    main()
