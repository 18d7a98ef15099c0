"""What an audit has found of a study, from its file to the evidence (docs/privacy.md P18).

`hubbub audit --out` writes the file, a run that is given it keeps it, and the run's evidence holds
it whole. The lower bound is computed again from what was counted; for the counts nobody can vouch
but whoever made the audit.
"""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from pathlib import Path

from hubbub.errors import StudyError
from hubbub.evidence.comparing import difference
from hubbub.evidence.finding import Finding, signed, wrong
from hubbub.evidence.reading import MALFORMED, Plain, plain_json, read_whole
from hubbub.plan import Plan
from hubbub.privacy import parameters
from hubbub.privacy.guesses import Rates, lower_bound
from hubbub.report.figures import at_least, at_most
from hubbub.study import Study

FORMAT = "hubbub audit 1"
AUDIT = "audit.json"
_COUNTS = ("true", "positives", "false", "negatives")
_BOUNDS = ("adversary", "epsilon_audited", "epsilon_promised")
_MOST = 2**53


def audit_as_plain(
    study: Study,
    bounds: Plain,
    *,
    runs: int,
    canaries: int,
    confidence: float,
    says: str,
    rates: Rates,
    seconds: float,
    version: str,
) -> Plain:
    """An audit as plain values, with what follows from its counts.

    Args:
        study: that was audited.
        bounds: of its plan; see `bounds_of`.
        runs, canaries, confidence: as for `hubbub.audit`.
        says: what its rule says of a canary.
        rates: of the rule, in the half of the runs that did not choose it.
        seconds: that it took.
        version: of hubbub that made it.
    """
    lower, audited = lower_bound(rates, study.privacy.delta, confidence), bounds["epsilon_audited"]
    return {
        "format": FORMAT,
        "version": version,
        "study": study.id.hex(),
        "delta": study.privacy.delta,
        "relation": study.privacy.relation,
        **bounds,
        "epsilon_lower": lower,
        "confidence": confidence,
        "contradicted": lower > (inf if audited is None else audited),
        "runs": runs,
        "canaries": canaries,
        "rule": {"says": says, **asdict(rates)},
        "seconds": seconds,
    }


def bounds_of(plan: Plan) -> Plain:
    """What an audit is held against; an epsilon past 50 is None."""
    audited, promised = plan.epsilon_of_training, plan.stated.epsilon
    return {
        "adversary": plan.stated.adversary,
        "epsilon_audited": audited if audited < inf else None,
        "epsilon_promised": promised if promised < inf else None,
    }


def read_audit(path: Path, plan: Plan) -> Plain:
    """An audit that a run of a plan can be given.

    Raises:
        UserError: the file cannot be read.
        StudyError: it holds no audit of this study, or one that contradicts the promise.
    """
    content, said = read_whole(path), {}
    try:
        said = plain_json(content)
        why = _flaw(said, plan.study, bounds_of(plan))
    except MALFORMED as error:
        why = f"it cannot be read ({type(error).__name__})"
    if why:
        raise StudyError(
            f"expected an audit of “{plan.study.name}” in {path}, but {why}; make it again with "
            "hubbub audit --out"
        )
    if said["contradicted"]:
        raise StudyError(
            f"expected an audit that agrees with the promise in {path}, it saw epsilon of at least "
            f"{at_least(said['epsilon_lower'])} in sums that may tell "
            f"{at_most(said['epsilon_audited'])}; do not train with this installation"
        )
    return said


def audit_finding(said: Plain, study: Study, plan: Plan | None) -> Finding:
    """How an audit in evidence stands.

    Args:
        said: what the evidence says of it.
        study: of the evidence.
        plan: made again; None if that cannot be done from the study alone.

    Raises:
        one of MALFORMED: it is nothing of the kind.
    """
    why = _flaw(said, study, bounds_of(plan) if plan else {name: said[name] for name in _BOUNDS})
    claim = (
        f"an audit by hubbub {said['version']} of {said['runs']} runs with {said['canaries']} "
        f"canaries saw epsilon of at least {at_least(said['epsilon_lower'])} "
        f"({100 * said['confidence']:.6g} % confidence) in sums that may tell "
        f"{at_most(said['epsilon_audited'])}"
    )
    if why or said["contradicted"]:
        return wrong(claim, why or "more was seen than is promised")
    return signed(claim)


def _flaw(said: Plain, study: Study, bounds: Plain) -> str:
    """Why this is no audit of the study, or not what follows from its own counts; "" if it is.

    Raises:
        one of MALFORMED: it is nothing of the kind.
    """
    if (said["format"], said["study"]) != (FORMAT, study.id.hex()):
        return "it is of another format or of another study"
    rule, counts = said["rule"], {}
    for name in _COUNTS:
        counts[name] = parameters.whole(name, rule[name], least=0, most=_MOST)
    rates = Rates(**counts)
    made = audit_as_plain(
        study,
        bounds,
        runs=parameters.whole("runs", said["runs"], least=2, most=_MOST),
        canaries=parameters.whole("canaries", said["canaries"], least=1, most=_MOST),
        confidence=parameters.within("confidence", said["confidence"], least=0.5, most=0.999999),
        says=str(rule["says"]),
        rates=rates,
        seconds=parameters.real("seconds", said["seconds"]),
        version=str(said["version"]),
    )
    judged = (made["runs"] - made["runs"] // 2) * made["canaries"]
    if rates.positives + rates.negatives != judged:
        return f"its rule judged {rates.positives + rates.negatives} canaries, {judged} were there"
    if rates.true > rates.positives or rates.false > rates.negatives:
        return "its rule spoke of more canaries than were there"
    return difference(said, made, "its")
