"""The claims of an evidence file, and how each stands for somebody who holds nothing else.

The plan is made again from the study's text, and epsilon from the attempts; signatures are
verified; the rest is said to be not verifiable. Nothing that a study names is imported, run or
opened: the file may come from anybody. The format is that of docs/evidence.md, and of the schema in
this folder. Nor may its numbers cost whoever checks them more than seconds: the accounts of a check
have a limit (`MOST_POINTS`), past which a claim is said to be not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from math import ceil, inf
from pathlib import Path

from hubbub.assurance.evidence.attested_sessions import attested_findings
from hubbub.assurance.evidence.audit_result import AUDIT, audit_finding
from hubbub.assurance.evidence.evidence_file import MALFORMED, Plain, load, part_words
from hubbub.assurance.evidence.finding import (
    Finding,
    difference,
    judged,
    not_checked,
    not_verifiable,
    signed,
    wrong,
)
from hubbub.assurance.transcript import roster_of
from hubbub.errors import EffortError, IntegrityError
from hubbub.planning import (
    TRAINING,
    Plan,
    earlier_degree,
    is_dimension,
    is_sparse,
    mechanism_of,
    plan_on_graph,
    told_shape,
)
from hubbub.planning import plan as plan_study
from hubbub.privacy import limited
from hubbub.protocol import Roster
from hubbub.report import at_most
from hubbub.study import SOFTWARE, Study

FORMAT = "hubbub evidence 1"
MODEL = "model.safetensors"
_KINDS = {
    **dict.fromkeys(("study", "epsilon", "plan", "files", "versions"), dict),
    **dict.fromkeys(("silos", "transcripts", "trust", "roster"), list),
}
_MEMBERS = {"format", "model", "audit", *_KINDS}
_ATTESTED = "attested"  # where the study asks for evidence
_SPENT = {"claimed", "attempts", "after_attempts"}
_MANY = 12  # silos beyond which each is mentioned only if something is wrong with it
MOST_POINTS = 3.2e6  # of the accounts of one check: some three seconds; usual are one or two


def within_seconds(*, thorough: bool) -> AbstractContextManager[None]:
    """Accounts that take seconds at most, whatever a study asks for, unless a check is thorough."""
    return limited(None if thorough else MOST_POINTS)


def check(path: Path, *, thorough: bool = False) -> list[Finding]:
    """Everything that the file alone can show; errors are those of `load`."""
    return check_content(load(path), thorough=thorough)


def check_content(content: Plain, *, thorough: bool = False) -> list[Finding]:
    """The claims of evidence whose signature was verified, and how each stands.

    Unless it is to be `thorough`, the accounts take seconds at most, whatever the study asks for.
    """
    with within_seconds(thorough=thorough):
        return _checked(content)


def _checked(content: Plain) -> list[Finding]:
    """The claims, within the work that is allowed."""
    if content.get("format") != FORMAT:
        why = "it is of another; use the version of hubbub that wrote it"
        return [wrong(f"the file has the format “{FORMAT}”", why)]
    odd = {key for key, kind in _KINDS.items() if not isinstance(content.get(key), kind)}
    if odd := odd | ((set(content) - {_ATTESTED}) ^ _MEMBERS):
        why = f"{', '.join(sorted(odd))}: another kind"
        return [wrong("the file has the members of its format", why)]
    found = [signed("the file is as the aggregator of its roster signed it, to the last byte")]
    found += _guarded("the study has the id that is claimed", _study_claims, content)
    if not all(one.holds for one in found):
        return found
    study = Study.parse(content["study"]["toml"])
    for claim, claims in (
        ("the plan and its epsilons follow from the study", _plan_claims),
        ("epsilon is said for the study's delta, relation and adversary", _asked_claims),
        ("every silo speaks for its ledger", _part_claims),
        ("the model and the transcripts have digests", _digest_claims),
        ("the audit is one of the study", _audit_claims),
        ("parties showed evidence as the study asks", attested_findings),
        ("what has to be trusted is said", _trust_claims),
    ):
        found += _guarded(claim, claims, content, study)
    return found


def spent(plan: Plan, attempts: int) -> list[Plain]:
    """Epsilon for every adversary of a plan after so many attempts; null past 50."""
    if attempts == 0 and not plan.queries:
        rows = {one.adversary: 0.0 for one in plan.exposures}
    else:
        names = [one.adversary for one in plan.exposures]
        rows = {name: plan.epsilon_after(max(attempts, 1), name) for name in names}
    return [
        {"adversary": name, "epsilon": epsilon if epsilon < inf else None}
        for name, epsilon in rows.items()
    ]


@lru_cache(maxsize=4, typed=True)  # asked for by the run's folder and by its evidence
def remade(study: Study, dimension: object, degree: object = None) -> Plan | None:
    """The plan of a study whose model a run states to be so large.

    A run that states the degree of an earlier mask graph is given the plan that it began with.
    None if that needs what only the study's own code or data know; no data set that it names is
    opened, for the study may come from anybody. IntegrityError if the run states no size.
    """
    if type(dimension) is not int or dimension < 1 or not is_dimension(study, dimension):
        raise IntegrityError(
            "expected the plan of a run to say how many parameters its model has, it does not"
        )
    if study.data.standardise is not None and told_shape(study, dimension) is None:
        return None
    if type(degree) is int and degree == earlier_degree(study):
        return plan_on_graph(study, degree, dimension=dimension)
    return plan_study(study, dimension=dimension)


def _remade_from(study: Study, stated: Plain) -> Plan | None:
    """The plan, made again as the run says that it was."""
    return remade(study, stated["dimension"], stated.get("degree"))


def _bears_all(plan: Plan) -> bool:
    """Whether the mask graph bears the stated adversary whenever its silos are corrupted (P4)."""
    parties = plan.study.parties
    least = parties.colluders + parties.dropouts + 2
    return not is_sparse(plan.study, plan.degree) or plan.degree >= least


def trusted(study: Study) -> list[str]:
    """What no file can show, each a clause that begins with “that”."""
    parties = study.parties
    compared = "; compare its digest with that of the roster which they exchanged"
    claims = [
        "that the keys in the roster belong to the parties that it names"
        f"{'' if parties.roster else compared}",
        "that the silos' software clipped their records and drew their shares of the noise as the "
        "study says",
        "that the silos' ledgers, which stay with them, hold what the silos have signed",
        "that no more silos help the aggregator than the stated epsilon is for, which is "
        f"{parties.colluders}; the plan says what more of them would learn",
        "that no person has several records in the study; who has is protected less",
        "that the metrics were measured as they are told",
    ]
    if parties.trust == "tee":
        claims.append(
            "that the silos' attested machines keep their secrets: the stated epsilon believes it, "
            "and the plan says what holds if they do not"
        )
    if study.attestation and SOFTWARE in study.attestation.platforms:
        claims.append(
            "that parties run the code that they say: evidence of the platform “software” is "
            "signed with a key that everybody has, and shows nothing"
        )
    if parties.compute_nodes:
        claims.append(
            "that of the compute nodes which a silo uses one at least does not collude, and that "
            "of all nodes one that does not was never set back to an earlier state"
        )
    return claims


def _guarded(claim: str, claims: Callable[..., Iterator[Finding]], *given: object) -> list[Finding]:
    """The findings of a check; content that is not what the format says is a finding too."""
    found: list[Finding] = []
    try:
        found.extend(claims(*given))
    except EffortError:
        found.append(not_checked(claim))
    except MALFORMED as error:
        why = f"it cannot be read as evidence: {type(error).__name__}, {error}"
        return [wrong(claim, why)]
    return found


def _study_claims(content: Plain) -> Iterator[Finding]:
    stated = content["study"]
    study = Study.parse(stated["toml"])
    made = {"name": study.name, "id": study.id.hex(), "toml": stated["toml"]}
    claim = f"the study is “{study.name}” with the id {study.id.hex()[:16]}…"
    yield judged(claim, difference(stated, made, "study"))


def _plan_claims(content: Plain, study: Study) -> Iterator[Finding]:
    found, account = content["plan"], content["epsilon"]
    made = _remade_from(study, found)
    if made is None:
        yield not_verifiable(
            "that the plan and its epsilons follow from the study: how many features a record has, "
            "only its own code or data know"
        )
        return
    yield judged("the plan's numbers follow from the study", difference(found, made.to_dict()))
    if not _bears_all(made):
        yield not_verifiable(
            "that silos which helped the aggregator did so before the mask graph was drawn: it is "
            f"of an earlier version, with {made.degree} neighbours a silo, which may not bear "
            f"{study.parties.colluders} that were corrupted later"
        )
    steps, attempts = study.training.steps, _attempts(account["attempts"])
    yield judged(
        f"epsilon is at most {at_most(made.stated.epsilon)} at delta {study.privacy.delta:g} "
        f"({study.privacy.relation}) against the {made.stated.adversary}, and as listed against "
        "every other adversary",
        difference(account["claimed"], spent(made, steps)),
    )
    rows = spent(made, attempts)
    stated = next(row for row in rows if row["adversary"] == made.stated.adversary)
    why = difference(account["after_attempts"], rows)
    if attempts > _paid_for(steps, study):
        why = f"the study allows for {steps} attempts"
    yield judged(f"after the {attempts} attempts charged, it is {at_most(stated['epsilon'])}", why)


def _asked_claims(content: Plain, study: Study) -> Iterator[Finding]:
    asked, stated = study.privacy, content["plan"]["stated_adversary"]  # found to follow before
    made = {"delta": asked.delta, "relation": asked.relation, "stated_adversary": stated}
    shown = {key: value for key, value in content["epsilon"].items() if key not in _SPENT}
    claim = "epsilon is said for the study's delta, relation and adversary"
    yield judged(claim, difference(shown, made, "epsilon"))


def _part_claims(content: Plain, study: Study) -> Iterator[Finding]:
    roster, parts = roster_of(content["roster"]), content["silos"]
    names = [roster.name(index) for index in roster.silos]
    why = "" if names == list(study.parties.names) else f"it lists {', '.join(names)}"
    yield judged("the roster lists the study's silos", why)
    spoken = [part["silo"] for part in parts]
    wrongs = {part["silo"]: _wrong_in(part, content, roster, study) for part in parts}
    claims = [wrong(_said_by(p), wrongs[p["silo"]]) for p in parts if wrongs[p["silo"]]]
    if len(set(spoken)) < len(spoken):
        claims.append(wrong("every silo speaks once", "one speaks twice"))
    yield from claims
    if len(parts) > _MANY:
        yield signed(f"{len(parts) - len(claims)} silos say what their ledgers hold")
    else:
        yield from (signed(_said_by(part)) for part in parts if not wrongs[part["silo"]])
    silent = [name for name in names if name not in spoken]
    if silent:
        yield not_verifiable(
            f"what the ledgers of {', '.join(silent[:_MANY])} hold: they have not signed"
        )


def _wrong_in(part: Plain, content: Plain, roster: Roster, study: Study) -> str:
    """What is wrong with a silo's part; "" if nothing is."""
    silo = next((p for p in roster.parties if p.name == part["silo"] and p.role == "silo"), None)
    sessions = {one["session"] for one in content["transcripts"]}
    if silo is None or not silo.verifies(bytes.fromhex(part["signature"]), part_words(part)):
        return "the signature is not that of a silo of the roster"
    if part["study"] != study.id.hex():
        return "it is about another study"
    if not set(part["sessions"]) <= sessions:
        return "it names a session of which there is no transcript"
    if _attempts(part["attempts"]) > _paid_for(_attempts(content["epsilon"]["attempts"]), study):
        return f"epsilon was counted for {content['epsilon']['attempts']} attempts only"
    return ""


def _attempts(value: object) -> int:
    """A count of attempts; ValueError if it is no whole number: half an attempt is none."""
    if type(value) is not int or value < 0:
        raise ValueError("attempts that are no whole number")
    return value


def _paid_for(attempts: int, study: Study) -> int:
    """Attempts that are paid for where so many are made: whole epochs of a kept list (P9)."""
    epoch = mechanism_of(study).epoch
    return epoch * ceil(attempts / epoch)


def _said_by(part: Plain) -> str:
    """A silo's part in words."""
    ledger, total = part["ledger"], part["data_set"]
    words = (
        f"{part['silo']}: {part['attempts']} attempts charged; its ledger has {ledger['rows']} "
        f"rows and the head {ledger['head'][:16]}…"
    )
    if total is None:
        return f"{words}; what its data set has spent in all, it does not tell"
    return (
        f"{words}; its data set has spent epsilon {at_most(total['epsilon'])} at delta "
        f"{total['delta']:g} ({total['relation']}) in all"
    )


def _digest_claims(content: Plain, _: Study) -> Iterator[Finding]:
    model, digests = content["model"], content["files"]
    why = "" if model == digests.get(MODEL) else "the list of files has another digest for it"
    yield judged("the model is the one in the list of files", why)
    digest, how = "none" if model is None else f"{model[:16]}…", f"`sha256sum {MODEL}`"
    yield signed(f"the model has the SHA-256 {digest}; {how} shows whether you have it")
    training = [one for one in content["transcripts"] if one["purpose"] == TRAINING]
    frames = sum(one["frames"] for one in content["transcripts"])
    yield signed(
        f"{len(training)} sessions of training and {len(content['transcripts']) - len(training)} "
        f"others, {frames} messages, which are in the run's folder"
    )
    versions = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    yield signed(f"made by {versions}")


def _audit_claims(content: Plain, study: Study) -> Iterator[Finding]:
    audit, kept = content["audit"], AUDIT in content["files"]
    if (audit is not None) != kept:
        why = f"{AUDIT} is {'' if kept else 'not '}among the files, unlike what an audit has found"
        yield wrong("an audit's file goes with what it has found", why)
    if audit is not None:
        yield audit_finding(audit, study, _remade_from(study, content["plan"]))


def _trust_claims(content: Plain, study: Study) -> Iterator[Finding]:
    roster = roster_of(content["roster"])
    claim, named = f"the roster has the digest {roster.digest.hex()}", study.parties.roster
    if named:  # then the study id stands for these keys
        other = "" if named == roster.digest.hex() else f"the study names the roster {named}"
        yield judged(f"{claim}, which the study names", other)
    else:
        yield signed(claim)
    own = trusted(study)
    yield from map(not_verifiable, own)
    yield from (not_verifiable(str(one)) for one in content["trust"] if one not in own)
