"""What an audit has found of a study, from its file to the evidence (docs/privacy.md P18).

`hubbub audit --out` writes the file, a run that is given it keeps it, and the run's evidence holds
it whole. The lower bound is computed again from what was counted; for the counts nobody can vouch
but whoever made the audit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

from hubbub.core.disk import json_value, write_text
from hubbub.core.errors import StudyError
from hubbub.core.number_format import at_least, at_most
from hubbub.core.planning.accounts import account_of, epsilon_of, least_certified, releases
from hubbub.core.planning.exposure import owned_records, stated_adversary
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import main_of
from hubbub.core.privacy import arguments
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.canary_guesses import Rates, lower_bound, worst_distance, worst_rates
from hubbub.core.privacy.dominating_pairs import Release
from hubbub.core.privacy.roots import root
from hubbub.core.privacy.tradeoff import TradeOff, upper_curve
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.evidence_file import (
    CLOSE,
    MALFORMED,
    Finding,
    Plain,
    difference,
    read_whole,
    signed,
    wrong,
)

# From an audit's counts to epsilon: with how much noise a study could just not have had them.
#
# What a rule's rates and right guesses show is held against the whole trade-off curve of the
# study's own mechanism (docs/privacy.md P18).

_MOST_NOISE = 1e5  # a mechanism with more has power for nothing
_EXACT = 1e-9  # logarithms of noise are found so exactly


def epsilon_shown(study: Study, rates: Rates, confidence: float) -> float:
    """Epsilon of a training's sums is at least so large, as these rates show (P18).

    The largest of three bounds that together fail once in 1 / (1 - confidence): what two rates say
    by themselves, and the epsilon of the study's own mechanism with so much noise that it could
    just not have had them, or so many right guesses.
    """
    delta, seen = study.privacy.delta, WorstRates.of(rates, confidence)
    by_rates = lower_bound(rates, delta, (1 + confidence) / 2)

    @cache
    def spare(logarithm: float) -> float:
        curve = upper_curve(Composition(_released(study, exp(logarithm))), near=seen.most / 10)
        return seen.spare(curve)

    low, high = log(least_certified(account_of(main_of(study).mechanism))), log(_MOST_NOISE)
    if spare(high) >= 0:
        return by_rates
    if spare(low) <= 0:
        return MOST_EPSILON
    epsilon = epsilon_of(_released(study, exp(root(spare, low, high, xtol=_EXACT))), delta)
    return max(by_rates, epsilon.lower if epsilon else MOST_EPSILON)


@dataclass(frozen=True, kw_only=True)
class WorstRates:
    """What rates show at least, at the confidence of each of three bounds.

    Args:
        least, most: the least true and the largest false positive rate.
        apart: how far apart the laws of both sides are at least, by right guesses.
    """

    least: float
    most: float
    apart: float

    @classmethod
    def of(cls, rates: Rates, confidence: float) -> WorstRates:
        """At half of what may go wrong for the rates, and half for the guesses."""
        each = (1 + confidence) / 2
        least, most = worst_rates(rates, each)
        return cls(least=least, most=most, apart=worst_distance(rates, each))

    def spare(self, curve: TradeOff) -> float:
        """How much more power a mechanism has than was seen; it falls as noise grows."""
        power = float(curve.true_positive_rate(self.most))
        return min(power - self.least, float(curve.delta[0]) - self.apart)


def _released(study: Study, noise: float) -> list[Release]:
    """The study's training with this noise multiplier, to the stated adversary."""
    mechanism = main_of(study).mechanism
    known = owned_records(mechanism, study.parties, study.parties.colluders + 1)
    return releases(account_of(mechanism), noise, mechanism.steps, known)


FORMAT = "hubbub audit 3"
AUDIT = "audit.json"
# What a rule says of a canary: the True side of its coin, and the other.
SIDES = {"add-remove": ("there", "not there"), "substitute": ("adds", "subtracts")}
_COUNTS = ("true", "positives", "false", "negatives")
_BOUNDS = ("epsilon_audited", "epsilon_promised")
_MOST_RUNS, MOST_CANARIES = 10**6, 10_000  # a record of each canary has as many features
_MOST = _MOST_RUNS * MOST_CANARIES
_MOST_BYTES = 2**16  # there are some twenty numbers
SMALL_SHARE = 1 / 16  # of all numbers of a word, that count as small
SURELY = 1e-9  # a sound study is called unmasked once in so many audits
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Counts of what messages must not tell.

    Args:
        numbers: of masked vectors, and of their differences, that were looked at.
        small: of these, which are small beside the word; see `are_masked`.
        matrices: of projections that were looked at.
        repeated: of these, which were there in the step before.
        lists: sessions whose batches come from fresh lists.
        kept: of these, whose batches are all one list's.
    """

    numbers: int = 0
    small: int = 0
    matrices: int = 0
    repeated: int = 0
    lists: int = 0
    kept: int = 0

    def __add__(self, other: Seen) -> Seen:
        """Of both."""
        mine, others = asdict(self), asdict(other)
        return Seen(**{name: mine[name] + others[name] for name in mine})

    @property
    def tells(self) -> bool:
        """Whether vectors were not masked, or a matrix or a list not new (P18)."""
        return self.repeated + self.kept > 0 or not are_masked(self.numbers, self.small)


def check_auditable(study: Study) -> None:
    """StudyError for a study without gradients, or whose noise no owner of a silo knows."""
    if not study.trains:
        raise StudyError(
            "expected a study that trains a model for an audit, because canaries are gradients, "
            "got one with statistics only; audit a training with the same privacy"
        )
    if study.parties.trust != "none":
        raise StudyError(
            f'expected parties.trust = "none" for an audit, got "{study.parties.trust}": an '
            "audit plays silos whose noise their owners know; leave trust out"
        )


def check_size(runs: object, canaries: object, confidence: object) -> tuple[int, int, float]:
    """What may be asked of an audit; StudyError if one of them is out of range."""
    return (
        arguments.whole("runs", runs, least=2, most=_MOST_RUNS),
        arguments.whole("canaries", canaries, least=1, most=MOST_CANARIES),
        arguments.within("confidence", confidence, least=0.5, most=0.999999),
    )


def choosing_runs(runs: int) -> int:
    """How many runs of an audit choose the rule that the others judge."""
    return max(1, runs // 4)


def audit_to_dict(
    study: Study,
    bounds: Plain,
    *,
    runs: int,
    canaries: int,
    confidence: float,
    says: str,
    rates: Rates,
    seen: Seen,
    seconds: float,
    version: str,
) -> Plain:
    """An audit as plain values, with what follows from its counts.

    The `bounds` are of `bounds_of`; the rule `says` one of `SIDES`, and its `rates` are those in
    the runs that did not choose it.
    """
    lower = epsilon_shown(study, rates, confidence)
    return {
        "format": FORMAT,
        "version": version,
        "study": study.id.hex(),
        "delta": study.privacy.delta,
        "relation": study.privacy.relation,
        "adversary": stated_adversary(study.parties),
        **bounds,
        "epsilon_lower": lower,
        "confidence": confidence,
        "contradicted": lower > bounds["epsilon_audited"] or seen.tells,
        "runs": runs,
        "canaries": canaries,
        "rule": {"says": says, **asdict(rates)},
        "messages": asdict(seen),
        "seconds": seconds,
    }


def are_masked(numbers: int, small: int) -> bool:
    """Whether so many small numbers are no more than fresh masks make of masked vectors (P18)."""
    from scipy.special import bdtrc  # which takes long to import

    return not small or bool(bdtrc(small - 1, numbers, SMALL_SHARE) > SURELY)


def bounds_of(plan: Plan) -> Plain:
    """What an audit is held against: the promise, and what the training's sums have of it."""
    return {
        "epsilon_audited": plan.epsilon_of_training,
        "epsilon_promised": plan.stated.epsilon,
    }


def write_audit(path: Path, audit: Mapping[str, Any]) -> None:
    """Write what an audit has found, as `read_audit` reads it."""
    write_text(path, json.dumps(dict(audit), indent=2) + "\n")


def read_audit(path: Path, plan: Plan) -> Plain:
    """The audit in a file, held against the plan of a run.

    Whoever audits may not know yet how large the model is, which changes last digits of a plan.

    Raises:
        UserError: the file cannot be read.
        StudyError: it holds no audit of this study, or one that contradicts the promise.
    """
    content, made = read_whole(path, most=_MOST_BYTES), {}
    try:
        result = json_value(content)
        why = difference(result, _made_again(result, plan.study, _own_bounds(result, plan.study)))
        made = _made_again(result, plan.study, bounds_of(plan))
    except MALFORMED as error:
        why = f"it cannot be read ({type(error).__name__}: {error})"
    if why:
        raise StudyError(
            f"expected an audit of “{plan.study.name}” in {path}, but {why}; make it again with "
            "hubbub audit --out"
        )
    if made["contradicted"]:
        raise StudyError(
            f"expected an audit that agrees with the promise in {path}, it saw epsilon of at least "
            f"{at_least(made['epsilon_lower'])} in sums that may tell "
            f"{at_most(made['epsilon_audited'])}; {remedy(made['confidence'])}"
        )
    return made


def remedy(confidence: float) -> str:
    """What to do about an audit that contradicts the promise."""
    return (
        f"by chance this happens once in {1 / (1 - confidence):.0f} audits: repeat it "
        "with a higher --confidence, and do not train with this installation before"
    )


def audit_finding(found: Plain, study: Study, plan: Plan | None) -> Finding:
    """How an audit in evidence stands; one of MALFORMED if it is nothing of the kind.

    Where no plan can be made again from the study alone, its bounds are only known to be no more
    than the study's epsilon.
    """
    made = _made_again(found, study, bounds_of(plan) if plan else _own_bounds(found, study))
    claim = (
        f"an audit by hubbub {made['version']} of {made['runs']} runs with "
        f"{made['canaries']} canaries found epsilon of at least "
        f"{at_least(made['epsilon_lower'])} ({100 * made['confidence']:.6g} % confidence) "
        f"in sums that may reveal {at_most(made['epsilon_audited'])}"
    )
    why = difference(found, made)
    if why or made["contradicted"]:
        return wrong(claim, why or "more was found than they may reveal")
    return signed(claim)


def _made_again(found: Plain, study: Study, bounds: Plain) -> Plain:
    """What follows of an audit of this study from its counts; one of MALFORMED if it is none."""
    if (found["format"], found["study"]) != (FORMAT, study.id.hex()):
        raise StudyError("it is of another format or of another study")
    check_auditable(study)
    rule, version = found["rule"], found["version"]
    if rule["says"] not in SIDES[study.privacy.relation] or not _VERSION.fullmatch(version):
        raise ValueError("words that are in no audit")
    runs, canaries, confidence = check_size(found["runs"], found["canaries"], found["confidence"])
    counts = {name: arguments.whole(name, rule[name], least=0, most=_MOST) for name in _COUNTS}
    # P18: trials by which the rule was chosen judge nothing.
    rates, judged = Rates(**counts), (runs - choosing_runs(runs)) * canaries
    if rates.positives + rates.negatives != judged:
        raise ValueError(f"{rates.positives + rates.negatives} canaries, {judged} were judged")
    if rates.true > rates.positives or rates.false > rates.negatives:
        raise ValueError("a rule that spoke of more canaries than were there")
    messages = found["messages"]
    most = {
        "small": messages["numbers"],
        "repeated": messages["matrices"],
        "kept": messages["lists"],
    }
    seen = {
        name: arguments.whole(name, messages[name], least=0, most=most.get(name, _MOST**2))
        for name in asdict(Seen())
    }
    return audit_to_dict(
        study,
        bounds,
        seen=Seen(**seen),
        runs=runs,
        canaries=canaries,
        confidence=confidence,
        says=rule["says"],
        rates=rates,
        seconds=arguments.within("seconds", found["seconds"], least=0, most=1e12),
        version=version,
    )


def _own_bounds(found: Plain, study: Study) -> Plain:
    """What an audit says that it was held against: never more than the study's epsilon."""
    most = study.privacy.epsilon * (1 + CLOSE)
    return {name: arguments.within(name, found[name], least=0, most=most) for name in _BOUNDS}
