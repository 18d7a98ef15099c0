"""`hubbub fraction`: how far malicious records raise the effective sampling fraction.

The paper's figure on sampling without replacement: a table for each batch, and a picture if asked
for. The numbers are made in `privacy/effective_sampling_rate.py`, the picture in `report/rate_chart.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hubbub.cli.output import add_json, bar, emit, number, say, table
from hubbub.errors import StudyError, UserError
from hubbub.privacy import arguments
from hubbub.privacy.effective_sampling_rate import SHARES, Panel, Question, panel, quantile_rate
from hubbub.report.number_format import amount
from hubbub.report.rate_chart import picture

_SLACKS = (0.0, 1e-15, 1e-10, 1e-5)
_BATCHES = (500, 2500)
_MOST_BATCHES, _MOST_SLACKS = 4, 5


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "effective sampling fraction without replacement, against malicious records"
    parser: argparse.ArgumentParser = commands.add_parser(
        "fraction", help=words, description=f"{words[0].upper()}{words[1:]}."
    )
    parser.add_argument("--records", type=int, default=50_000, help="n, over all silos")
    parser.add_argument("--batch", type=int, nargs="+", default=_BATCHES, help="one or more")
    parser.add_argument(
        "--slack",
        type=float,
        nargs="+",
        default=_SLACKS,
        help="probabilities, in one step, of more honest records in the batch than are counted",
    )
    parser.add_argument("--noise-multiplier", type=float, default=2.0, help="sigma / C; mixture")
    parser.add_argument("--steps", type=int, default=1250, help="for the mixture")
    parser.add_argument("--delta", type=float, default=1e-5, help="for the mixture")
    parser.add_argument("--out", type=Path, metavar="FILE.svg", help="also draw it, as an SVG file")
    add_json(parser)
    parser.set_defaults(command=_fraction)


def _fraction(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    asked = _question(options)
    batches = _some("--batch", options.batch, _MOST_BATCHES)
    with bar("mixtures", len(batches) * len(SHARES), quiet=options.json) as shown:
        panels = [
            panel(asked, _batch(asked, batch), partial(shown.advance, f"batch {batch}"))
            for batch in batches
        ]
    if options.out:
        _write(options.out, picture(asked, panels))
    if options.json:
        emit(_content(asked, panels) | {"seconds": time.perf_counter() - start})
    else:
        _show(asked, panels)
        if options.out:
            say(f"drawn in {options.out}")
    return 0


def _question(options: argparse.Namespace) -> Question:
    slacks = tuple(sorted({arguments.real("slack", one) for one in options.slack}))
    if not all(0 <= slack < 1 for slack in slacks):
        raise StudyError(
            "expected every --slack from 0 to below 1, got another; pass probabilities"
        )
    _some("--slack", slacks, _MOST_SLACKS)
    return Question(
        records=arguments.whole("records", options.records, least=2, most=10**7),
        slacks=slacks,
        noise_multiplier=arguments.noise(options.noise_multiplier),
        steps=arguments.whole("steps", options.steps, least=1, most=arguments.MOST_STEPS),
        delta=arguments.delta(options.delta),
    )


def _some(name: str, values: Sequence[Any], most: int) -> Sequence[Any]:
    if len(values) > most:
        raise UserError(f"expected at most {most} values of {name}, got {len(values)}; ask twice")
    return values


def _batch(asked: Question, batch: int) -> int:
    return arguments.whole("batch", batch, least=1, most=asked.records // 2)


def _content(asked: Question, panels: Sequence[Panel]) -> dict[str, Any]:
    """For machines."""
    return {
        "records": asked.records,
        "noise_multiplier": asked.noise_multiplier,
        "steps": asked.steps,
        "delta": asked.delta,
        "panels": [
            {
                "batch": one.batch,
                "curves": [
                    {
                        "slack": slack,
                        "points": [{"malicious": m, "rate": rate} for m, rate in curve],
                    }
                    for slack, curve in zip(asked.slacks, one.curves, strict=True)
                ],
                "mixture": [
                    {"malicious": at.malicious, "epsilon": at.epsilon, "rate": at.rate}
                    for at in one.mixture
                ],
            }
            for one in panels
        ],
    }


def _show(asked: Question, panels: Sequence[Panel]) -> None:
    """For people: a table for each batch."""
    slacks = [f"slack {amount(slack)}" for slack in asked.slacks]
    for one in panels:
        rows = []
        for at in one.mixture:
            rates = [
                quantile_rate(asked.records, one.batch, at.malicious, slack)
                for slack in asked.slacks
            ]
            texts = [f"{rate:.5f}" for rate in (*rates, at.rate)]
            rows.append([f"{at.malicious:,}", *texts, number(at.epsilon)])
        table(
            f"Effective sampling fraction, batch {one.batch:,} of {asked.records:,} records",
            ["malicious records", *slacks, "mixture", "its epsilon"],
            rows,
        )
    say(
        f"Slack is paid in each of {asked.steps:,} steps out of delta. The mixture pays none: it "
        f"is the fraction whose epsilon, at noise multiplier {asked.noise_multiplier:g} and delta "
        f"{amount(asked.delta)}, is the exact one."
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"expected a file that can be written, got {path}: {error.strerror}"
        ) from None
