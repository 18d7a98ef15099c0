"""A token list that is kept, against a fresh one for every step and Poisson batches, under attack.

    python -m experiments.token_lists [--small]

Not in the paper, which keeps its list of tokens and counts every step as if the list were new.
The attack is that of record_attack.py, the best there is on its record. It succeeds where it says
"x" and x it was. What its rates show is set beside what hubbub's plan charges, and beside what an
account claims that counts the steps as independent: right for fresh lists and Poisson batches,
false for a kept list (docs/privacy.md P9). "kept list" draws every batch from the whole list, as
the paper does; "kept list in parts" is hubbub's `tokens = "static"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from pathlib import Path
from string import Template
from typing import Any

import hubbub
from experiments.command import Shown, fill, options_of, parser_of
from experiments.rates import best_hits
from experiments.record_attack import FRESH, KEPT, NOISE, PARTS, POISSON, PreparedStudy, attacked
from experiments.results import Row, Table
from hubbub.core.planning.accounts import account_of, epsilon_of, releases
from hubbub.learning.queries.training_query import training_of

STUDY = Template("""
[study]
name = "token-lists"

[parties]
silos = 4
colluders = 0

[data]
source = "hubbub.datasets:heart"
records = $records

[model]
kind = "logistic"
inputs = [26]

[training]
steps = $steps
sample_rate = $rate
clip_norm = 1.0
optimizer = { name = "sgd", lr = 0.1 }
$sampling

[privacy]
epsilon = 1.0                   # not used: the noise is given
delta = 1e-5
relation = "substitute"
""")

DELTA = 1e-5
STEPS, SMALL_STEPS = (100, 200, 400, 800, 1600), (800,)
TRIALS, SMALL_TRIALS = 200_000, 10_000  # of each of the two records

LOOK = {KEPT: 1, PARTS: 3, FRESH: 0, POISSON: 2}  # of the figure, in the order of the rows
_FLOOR = 0.1  # of epsilon in the figure
_TITLES = (
    "one list for all steps: the claim per step is broken",
    "fresh lists, Poisson batches: the claim per step holds",
    "delta (an arrow: the attack shows none)",
)
_JOINT = 'sampling = "without-replacement"\ntokens = '
SAMPLING = {
    PARTS: f'{_JOINT}"static"',
    FRESH: f'{_JOINT}"per-step"',
    POISSON: 'sampling = "poisson"',
}
KEY = ("scheme", "steps")
COLUMNS = (*KEY, "records", "batch", "noise_multiplier", "delta", "trials", "most_uses")
COLUMNS += ("epsilon_per_step", "epsilon_account", "attack_epsilon", "attack_delta")
COLUMNS += ("true_positives", "false_positives", "true_positive_least", "false_positive_most")


def account(name: str, setting: PreparedStudy, most_uses: int) -> float:
    """What hubbub's plan charges; a kept list with random batches by P9 (c), as no study has it."""
    if name == KEPT:
        return whole_batches(most_uses)
    study = STUDY.substitute(
        records=setting.records,
        steps=setting.steps,
        rate=setting.rate,
        sampling=SAMPLING[name],
    )
    mechanism = account_of(training_of(hubbub.Study.parse(study)).mechanism)
    found = epsilon_of(releases(mechanism, NOISE, setting.steps), DELTA)
    return found.upper if found else inf


def whole_batches(uses: int) -> float:
    """Epsilon of so many steps in which the record surely takes part."""
    return hubbub.epsilon(
        noise_multiplier=NOISE,
        steps=uses,
        delta=DELTA,
        relation="substitute",
        sampling="full-batch",
    ).upper


def per_step(name: str, setting: PreparedStudy) -> float:
    """What an account claims that counts steps as independent: right but for kept lists (P9)."""
    return hubbub.epsilon(
        noise_multiplier=NOISE,
        sample_rate=setting.rate,
        steps=setting.steps,
        delta=DELTA,
        relation="substitute",
        sampling="poisson" if name == POISSON else "without-replacement",
    ).upper


def measured(name: str, setting: PreparedStudy, shown: Shown) -> dict[str, object]:
    """Attack one scheme, and ask both accounts."""
    attack = attacked(name, setting, shown)
    claimed = per_step(name, setting)
    hits = best_hits(attack.given_x, attack.given_other, lambda found: found.epsilon(DELTA))
    beyond = best_hits(attack.given_x, attack.given_other, lambda found: found.delta(claimed))
    return {
        "records": setting.records,
        "batch": setting.batch,
        "noise_multiplier": NOISE,
        "delta": DELTA,
        "trials": hits.trials,
        "most_uses": attack.most_uses,
        "epsilon_per_step": claimed,
        "epsilon_account": account(name, setting, attack.most_uses),
        "attack_epsilon": hits.epsilon(DELTA),
        "attack_delta": beyond.delta(claimed),
        "true_positives": hits.true / hits.trials,
        "false_positives": hits.false / hits.trials,
        "true_positive_least": hits.true_least,
        "false_positive_most": hits.false_most,
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Kept lists, the schemes whose account holds, and how far beyond its claim delta is."""
    from experiments.drawing import panels, plain_ticks, save

    figure, (kept, sound, beyond) = panels(3, width=5.6, height=5.2)
    for panel, names in ((kept, (KEPT, PARTS)), (sound, (FRESH, POISSON))):
        for name in names:
            charged(panel, rows, name)
            bounds(panel, rows, name, "attack_epsilon", f"shown by the attack: {name}", _FLOOR)
        panel.set_ylabel(f"epsilon (delta = {DELTA:g}, substitute)")
        panel.set_yscale("log")
        panel.set_ylim(_FLOOR / 1.2, 500)
        plain_ticks(panel.yaxis, (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50))
    broken(kept, rows)
    for name in LOOK:
        bounds(beyond, rows, name, "attack_delta", f"shown by the attack: {name}", DELTA / 10)
    beyond.axhline(DELTA, color="#000000", linestyle="--", label="claimed")
    beyond.set_yscale("log")
    beyond.set_ylabel("delta at the epsilon claimed per step")
    beyond.set_ylim(DELTA / 15, 20)
    plain_ticks(beyond.yaxis, (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1))
    for panel, title in zip((kept, sound, beyond), _TITLES, strict=True):
        panel.set_title(title, fontsize=11)
        panel.set_xscale("log")
        panel.set_xlabel("steps")
        plain_ticks(panel.xaxis, sorted({int(row["steps"]) for row in rows}))
        panel.legend(fontsize=8, loc="upper left")
    save(figure, path)


def of_scheme(rows: Sequence[Row], name: str) -> list[Row]:
    """The rows of one scheme in order of steps."""
    return sorted((row for row in rows if row["scheme"] == name), key=lambda row: int(row["steps"]))


def charged(panel: Any, rows: Sequence[Row], name: str) -> None:
    """The account of a scheme as a line."""
    from experiments.drawing import LOOKS

    mine = of_scheme(rows, name)
    panel.plot(
        [int(row["steps"]) for row in mine],
        [float(row["epsilon_account"]) for row in mine],
        color=LOOKS[LOOK[name]][0],
        label=f"hubbub's account: {name}",
    )


def bounds(
    panel: Any, rows: Sequence[Row], name: str, wanted: str, label: str, floor: float
) -> None:
    """Lower bounds by the attack, with bars up to the measured rates; 0 is an arrow down."""
    from experiments.drawing import LOOKS

    colour, marker = LOOKS[LOOK[name]]
    found = [row for row in of_scheme(rows, name) if float(row[wanted]) > floor]
    values = [float(row[wanted]) for row in found]
    above = [rated(row) - float(row[wanted]) if wanted == "attack_epsilon" else 0 for row in found]
    panel.errorbar(
        [int(row["steps"]) for row in found],
        values,
        yerr=[[0.0] * len(found), above],
        color=colour,
        marker=marker,
        linestyle=":",
        capsize=3,
        label=label,
    )
    for row in of_scheme(rows, name):
        if float(row[wanted]) <= floor:
            place = int(row["steps"]) * 1.06 ** (LOOK[name] - 1)
            panel.plot(place, floor, color=colour, marker="$\\downarrow$", markersize=11)


def rated(row: Row) -> float:
    """Epsilon of the measured rates; of the bound on false positives where there were none."""
    false = float(row["false_positives"]) or float(row["false_positive_most"])
    return log((float(row["true_positives"]) - DELTA) / false)


def broken(panel: Any, rows: Sequence[Row]) -> None:
    """The claim per step for a kept list, and the room between it and what the attack shows."""
    steps, claimed, shown = (
        [float(row[key]) for row in of_scheme(rows, KEPT)]
        for key in ("steps", "epsilon_per_step", "attack_epsilon")
    )
    panel.plot(steps, claimed, color="#000000", linestyle="--", label="claimed per step (false)")
    panel.fill_between(
        steps,
        claimed,
        shown,
        where=[y > x for x, y in zip(claimed, shown, strict=True)],
        interpolate=True,
        color="#d55e00",
        alpha=0.18,
        label="the claim is broken",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    settings = [
        PreparedStudy(records=50, batch=1, steps=steps, trials=SMALL_TRIALS)
        if options.small
        else PreparedStudy(records=1000, batch=10, steps=steps, trials=TRIALS)
        for steps in (SMALL_STEPS if options.small else STEPS)
    ]
    points = [(name, setting) for setting in settings for name in LOOK]
    table = Table(path=options.out / "token_lists.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [{"scheme": name, "steps": setting.steps} for name, setting in points],
        lambda number, shown: measured(*points[number], shown),
        module="experiments.token_lists",
        arguments=arguments,
    )
    draw(table.rows(), options.out / "token_lists.png")


if __name__ == "__main__":
    main()
