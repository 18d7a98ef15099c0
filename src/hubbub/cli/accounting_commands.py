"""`hubbub epsilon`, `delta` and `noise`: the accountant on its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hubbub
from hubbub.cli.curve import write_curve
from hubbub.cli.output import add_json, emit, say
from hubbub.privacy import RELATIONS, SAMPLINGS

_EPSILON, _DELTA = "0.001 to 50", "1e-12 to below 1"
_PLOT = (
    "also write the whole curve, delta against epsilon, with the answer as a dot, as an SVG file"
)


def add_commands(commands: Any) -> None:
    """Register the commands."""
    epsilon = _command(commands, "epsilon", "certified epsilon of DP-SGD at a delta", _epsilon)
    epsilon.add_argument("--noise-multiplier", type=float, required=True, help="sigma / C")
    epsilon.add_argument("--delta", type=float, required=True, help=_DELTA)
    delta = _command(commands, "delta", "certified delta of DP-SGD at an epsilon", _delta)
    delta.add_argument("--noise-multiplier", type=float, required=True, help="sigma / C")
    delta.add_argument("--epsilon", type=float, required=True, help="0 to 50")
    noise = _command(commands, "noise", "least noise for an epsilon and delta", _noise)
    noise.add_argument("--epsilon", type=float, required=True, help=_EPSILON)
    noise.add_argument("--delta", type=float, required=True, help=_DELTA)


def _command(
    commands: Any, name: str, words: str, function: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    parser.add_argument("--sample-rate", type=float, default=1.0, help="default 1: every record")
    parser.add_argument("--steps", type=int, required=True, help="how often noise is added")
    parser.add_argument(
        "--relation", choices=RELATIONS, default="add-remove", help="which data sets are neighbours"
    )
    parser.add_argument(
        "--sampling", choices=SAMPLINGS, default="poisson", help="how batches are drawn"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help=_PLOT)
    add_json(parser)
    parser.set_defaults(command=function)
    return parser


def _mechanism(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that all three questions share."""
    return {
        "sample_rate": options.sample_rate,
        "steps": options.steps,
        "relation": options.relation,
        "sampling": options.sampling,
    }


def _epsilon(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    mechanism = {"noise_multiplier": options.noise_multiplier, **_mechanism(options)}
    bound = hubbub.epsilon(delta=options.delta, **mechanism)
    seconds = time.perf_counter() - start
    if options.plot:
        write_curve(options.plot, mechanism, options.delta, bound.upper)
    if options.json:
        emit({"lower": bound.lower, "upper": bound.upper, "seconds": seconds})
    else:
        say(
            f"epsilon is between {bound.lower:.6f} and {bound.upper:.6f} at delta {options.delta:g}"
        )
    return 0


def _delta(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    mechanism = {"noise_multiplier": options.noise_multiplier, **_mechanism(options)}
    bound = hubbub.delta(epsilon=options.epsilon, **mechanism)
    seconds = time.perf_counter() - start
    if options.plot:
        write_curve(options.plot, mechanism, bound.upper, options.epsilon)
    if options.json:
        emit({"lower": bound.lower, "upper": bound.upper, "seconds": seconds})
    else:
        say(
            f"delta is between {bound.lower:.4g} and {bound.upper:.4g} "
            f"at epsilon {options.epsilon:g}"
        )
    return 0


def _noise(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    noise = hubbub.noise_multiplier(
        epsilon=options.epsilon, delta=options.delta, **_mechanism(options)
    )
    upper = hubbub.epsilon(noise_multiplier=noise, delta=options.delta, **_mechanism(options)).upper
    upper = min(upper, options.epsilon)  # calibration saw a sharper bound at the same noise
    seconds = time.perf_counter() - start
    if options.plot:
        mechanism = {"noise_multiplier": noise, **_mechanism(options)}
        write_curve(options.plot, mechanism, options.delta, upper)
    if options.json:
        emit({"noise_multiplier": noise, "epsilon_upper": upper, "seconds": seconds})
    else:
        say(f"noise multiplier {noise:.6g} (sigma / C) keeps epsilon at most {options.epsilon:g}")
    return 0
