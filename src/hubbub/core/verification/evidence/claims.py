"""The claims of an evidence file, and how each stands for somebody who holds nothing else.

The plan is made again from the study's text, and epsilon from the attempts; signatures are
verified; the rest is said to be not verifiable. Re-derived is what was computed here from the study
or from what the parties themselves have signed; what only the aggregator says is signed by it.
Nothing that a study names is imported, run or opened: the file may come from anybody. The format is
that of docs/evidence.md, and of the schema in this folder. Nor may its numbers cost whoever checks
them more than seconds: the accounts of a check have a limit (`MOST_POINTS`), past which a claim is
said to be not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from math import inf
from pathlib import Path

from hubbub import VERSION
from hubbub.core.errors import EffortError, IntegrityError
from hubbub.core.number_format import at_most, few, several
from hubbub.core.planning.exposure import stated_adversary
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import main_of
from hubbub.core.planning.study_plan import plan as plan_study
from hubbub.core.privacy.arguments import limited
from hubbub.core.registered import packages
from hubbub.core.study.attested_roles import SOFTWARE
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import AUDIT, audit_finding
from hubbub.core.verification.evidence.evidence_file import (
    LIBRARIES,
    MALFORMED,
    MODEL,
    RESTORE,
    Finding,
    Plain,
    difference,
    judged,
    load,
    not_checked,
    not_verifiable,
    rederived,
    signed,
    wrong,
)
from hubbub.core.verification.evidence.silo_parts import (
    SiloWords,
    attested_findings,
    count_of,
    least_attempts,
    part_claims,
)
from hubbub.core.verification.transcript.frame_records import roster_of

FORMAT = "hubbub evidence 1"
_KINDS = {
    **dict.fromkeys(("study", "epsilon", "plan", "files", "versions"), dict),
    **dict.fromkeys(("silos", "transcripts", "trust", "roster"), list),
}
_MEMBERS = {"format", "model", "audit", *_KINDS}
_ATTESTED = "attested"  # where the study asks for evidence
_SPENT = {"claimed", "attempts", "after_attempts"}
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
    whole = signed("the file is exactly what the aggregator of its roster signed")
    findings = [whole.covering("trust")]
    findings += _guarded("the study has the claimed id", _study_claims, content)
    if not all(one.holds for one in findings):
        return findings
    study = Study.parse(content["study"]["toml"])
    spoken = "every silo has signed for its ledger"
    # As if nobody had signed, if what the silos have signed cannot be read.
    wrongs = ("it cannot be read",) * len(content["silos"])
    words = SiloWords(wrongs=wrongs, doubtful=study.parties.names)
    try:
        words = SiloWords.of(content, study)
    except MALFORMED as error:
        findings.append(_unreadable(spoken, error, content))
    for claim, claims in (
        ("the plan and its epsilons follow from the study", _plan_claims),
        ("epsilon is stated for the study's delta, relation and adversary", _asked_claims),
        (spoken, part_claims),
        ("the model and the transcripts have digests", _digest_claims),
        ("the audit is one of the study", _audit_claims),
        ("parties showed evidence as the study asks", attested_findings),
        ("it says what has to be trusted", _trust_claims),
    ):
        findings += _guarded(claim, claims, content, study, words)
    return findings


def spent(plan: Plan, attempts: int) -> list[Plain]:
    """Epsilon for every adversary of a plan after so many attempts; null past 50."""
    if attempts == 0 and not plan.beside:
        rows = {exposure.adversary: 0.0 for exposure in plan.exposures}
    else:
        names = [exposure.adversary for exposure in plan.exposures]
        rows = {name: plan.epsilon_after(max(attempts, 1), name) for name in names}
    return [
        {"adversary": name, "epsilon": epsilon if epsilon < inf else None}
        for name, epsilon in rows.items()
    ]


@lru_cache(maxsize=4, typed=True)  # asked for by the run's folder and by its evidence
def remade(study: Study, dimension: object) -> Plan | None:
    """The plan of a study whose model a run states to be so large.

    None if that needs what only the study's own code or data know; no data set that it names is
    opened, for the study may come from anybody. IntegrityError if the run states no size.
    """
    ask = study.main_ask
    if type(dimension) is not int or dimension < 1 or not ask.is_dimension(study, dimension):
        raise IntegrityError(
            "expected the plan of a run to say how many parameters its model has, it does not"
        )
    return plan_study(study, dimension=dimension) if ask.is_planned(study, dimension) else None


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
        _units_apart(study),
        "that the metrics were measured as stated",
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
    if parties.node_hosts:
        claims.append(
            "that each compute node is run by the silo that the study names for it: "
            + ", ".join(parties.node_hosts)
        )
    return claims


def _units_apart(study: Study) -> str:
    """Who is protected less than the stated epsilon says."""
    if study.data.patient:
        return "that no patient has records at several silos; a patient who does is protected less"
    return "that no person has several records in the study; a person who does is protected less"


def _guarded(
    claim: str, claims: Callable[..., Iterator[Finding]], content: Plain, *given: object
) -> list[Finding]:
    """The findings of a check; content that is not what the format says is a finding too."""
    findings: list[Finding] = []
    try:
        findings.extend(claims(content, *given))
    except EffortError:
        findings.append(not_checked(claim))
    except MALFORMED as error:
        return [_unreadable(claim, error, content)]
    return findings


def _unreadable(claim: str, error: Exception, content: Plain) -> Finding:
    why = f"it cannot be read as evidence: {type(error).__name__}, {error}"
    return wrong(claim, by_version(why, content))


def _study_claims(content: Plain) -> Iterator[Finding]:
    stated = content["study"]
    study = Study.parse(stated["toml"])
    made = {"name": study.name, "id": study.id.hex(), "toml": stated["toml"]}
    claim = (
        f"the study “{study.name}” has the id {study.id.hex()[:16]}…, which follows from its text"
    )
    yield judged(claim, difference(stated, made, "study")).covering("study")


def _plan_claims(content: Plain, study: Study, words: SiloWords) -> Iterator[Finding]:
    plan_told, account = content["plan"], content["epsilon"]
    made = remade(study, plan_told["dimension"])
    if made is None:
        yield not_verifiable(
            "that the plan and its epsilons follow from the study: only the study's own "
            "code or data can say how many features a record has"
        ).covering("plan", "epsilon.claimed", "epsilon.after_attempts", "epsilon.attempts")
        return
    claim = (
        f"the plan's numbers follow from the study {study.id.hex()[:16]}…, to six digits, "
        f"for {made.dimension} parameters"
    )
    why = by_version(difference(plan_told, made.to_dict()), content)
    yield judged(claim, why).covering("plan")
    claim = (
        f"epsilon is at most {at_most(made.stated.epsilon)} at delta {study.privacy.delta:g} "
        f"({study.privacy.relation}) against the {made.stated.adversary}, and as listed, to six "
        "digits, against every other adversary, if the study ran as planned"
    )
    why = by_version(difference(account["claimed"], spent(made, made.mechanism.steps)), content)
    # The aggregator stands for what was computed again where silos might doubt the study itself.
    doubt = "" if words.show(study) else "that it is this study: too few silos have signed"
    shown = signed(f"{claim}: {doubt}") if doubt and not why else judged(claim, why)
    yield shown.covering("epsilon.claimed")
    counted = _attempts_claim(content, study, words, made)
    yield counted.covering("epsilon.attempts", "epsilon.after_attempts")


def by_version(why: str, content: Plain) -> str:
    """Why something is not what follows here; and who can judge what was made elsewhere."""
    versions = content.get("versions")
    made_with = versions if isinstance(versions, dict) else {}
    if why and (version := made_with.get("hubbub", VERSION)) != VERSION:
        said = version if _is_plain(version) else "of another version"
        why += f"; hubbub {said} made it, and this is {VERSION}: verify it with that version"
    # Whoever signed it names them, and they may mean harm.
    others = set(filter(_is_plain, made_with)) - {"hubbub", "python", *LIBRARIES}
    if why and (lacking := sorted(others - packages().keys())):
        why += (
            f"; it says that {few(lacking)}, not installed here, had a part in it: verify it with "
            "that, if you know the package and trust it"
        )
    return why


def _is_plain(said: object) -> bool:
    """Whether it may be the name of a package, or a version; a sentence is neither."""
    return isinstance(said, str) and bool(re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.+-]{0,49}", said))


def _attempts_claim(content: Plain, study: Study, words: SiloWords, made: Plan) -> Finding:
    """What was spent so far; that no silo has charged more, only all of them can show."""
    attempts = count_of(content["epsilon"]["attempts"])
    rows, least = spent(made, attempts), least_attempts(content, study)
    stated = next(row for row in rows if row["adversary"] == made.stated.adversary)
    how = "charged" if attempts == words.attempts else "counted"
    claim = (
        f"after {several(attempts, 'attempt')} {how}, it is at most {at_most(stated['epsilon'])}"
    )
    why = by_version(difference(content["epsilon"]["after_attempts"], rows), content)
    if attempts > made.mechanism.paid_attempts:
        why = f"the study allows {made.mechanism.steps} attempts"
    if attempts < least:
        why = f"the messages that are listed are of {least} attempts at least"
    if why:
        return wrong(claim, why)
    if words.are_final:
        return rederived(
            f"{claim}; no silo has charged more than {words.attempts}, as all silos "
            "signed with the roster's keys"
        )
    return signed(f"{claim}; this is the aggregator's count: {words.doubt}")


def _asked_claims(content: Plain, study: Study, _: SiloWords) -> Iterator[Finding]:
    asked = study.privacy
    made = {
        "delta": asked.delta,
        "relation": asked.relation,
        "stated_adversary": stated_adversary(study.parties),
    }
    shown = {key: value for key, value in content["epsilon"].items() if key not in _SPENT}
    claim = (
        f"epsilon is stated for delta, relation and adversary of the study {study.id.hex()[:16]}…"
    )
    why = difference(shown, made, "epsilon")
    if not why and shown != made:
        why = f"delta is {shown['delta']!r}, {asked.delta!r} follows from the study"
    yield judged(claim, why).covering(*(f"epsilon.{name}" for name in made))


def _digest_claims(content: Plain, study: Study, _: object) -> Iterator[Finding]:
    model, digests = content["model"], content["files"]
    if model != digests.get(MODEL):
        why = "the list of files has another digest for it"
        yield wrong("the model is the one in the list of files", why).covering("model", "files")
    if model is not None:
        said = f"the model's SHA-256 begins with {model[:16]}: compare `sha256sum {MODEL}`"
        yield signed(said).covering("model", "files")
    elif study.trains:
        why = f"there is none; {RESTORE}"
        yield wrong("the run has the model that its study trains", why).covering("model", "files")
    else:
        yield signed("no model was trained").covering("model", "files")
    for name in ("file", "session"):  # else one would stand for a session that was dropped
        if len({transcript[name] for transcript in content["transcripts"]}) < len(
            content["transcripts"]
        ):
            why = f"two have the same {name}"
            yield wrong("each transcript is listed once", why).covering("transcripts")
    purpose = main_of(study).mechanism.purpose
    main = [transcript for transcript in content["transcripts"] if transcript["purpose"] == purpose]
    frames = sum(transcript["frames"] for transcript in content["transcripts"])
    yield signed(
        f"{several(len(main), 'session')} of {purpose}, {len(content['transcripts']) - len(main)} "
        f"of other queries, {frames} messages, all in the run's folder"
    ).covering("transcripts")
    versions = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    yield signed(f"made by {versions}").covering("versions")


def _audit_claims(content: Plain, study: Study, _: SiloWords) -> Iterator[Finding]:
    audit, kept = content["audit"], AUDIT in content["files"]
    if (audit is not None) != kept:
        why = f"{AUDIT} is {'' if kept else 'not '}among the files, unlike what an audit has found"
        yield wrong("an audit's file goes with what it has found", why).covering("audit")
    if audit is not None:
        finding = audit_finding(audit, study, remade(study, content["plan"]["dimension"]))
        yield finding.covering("audit")


def _trust_claims(content: Plain, study: Study, _: SiloWords) -> Iterator[Finding]:
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
