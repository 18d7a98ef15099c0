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
from pathlib import Path
from typing import Any

from hubbub.core.disk import json_value, write_text
from hubbub.core.errors import StudyError
from hubbub.core.number_format import at_least, at_most
from hubbub.core.planning.exposure import stated_adversary
from hubbub.core.planning.plan_values import Plan
from hubbub.core.privacy import arguments
from hubbub.core.privacy.canary_guesses import Rates
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.evidence_file import MALFORMED, Plain, read_whole
from hubbub.core.verification.evidence.finding import CLOSE, Finding, difference, signed, wrong
from hubbub.core.verification.evidence.shown_epsilon import epsilon_shown

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
            "expected a study that trains a model for an audit, whose canaries are gradients, got "
            "one of statistics alone; audit a training with the same privacy"
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
        f"by chance that happens once in {1 / (1 - confidence):.0f} audits: repeat it with a "
        "higher --confidence, and do not train with this installation before"
    )


def audit_finding(found: Plain, study: Study, plan: Plan | None) -> Finding:
    """How an audit in evidence stands; one of MALFORMED if it is nothing of the kind.

    Where no plan can be made again from the study alone, its bounds are only known to be no more
    than the study's epsilon.
    """
    made = _made_again(found, study, bounds_of(plan) if plan else _own_bounds(found, study))
    claim = (
        f"an audit by hubbub {made['version']} of {made['runs']} runs with {made['canaries']} "
        f"canaries saw epsilon of at least {at_least(made['epsilon_lower'])} "
        f"({100 * made['confidence']:.6g} % confidence) in sums that may tell "
        f"{at_most(made['epsilon_audited'])}"
    )
    why = difference(found, made)
    if why or made["contradicted"]:
        return wrong(claim, why or "more was seen than they may tell")
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
