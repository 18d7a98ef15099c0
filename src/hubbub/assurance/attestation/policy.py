"""What evidence must show to be enough: small rules, and how they are put together.

A rule looks at claims that a verifier has made, and raises if they are not enough; it says in words
what it asks for. `policy_of` makes the rules of one role of a study.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubbub.assurance.attestation.attested_claims import AttestedClaims
from hubbub.errors import AttestationError
from hubbub.study import AttestedRole

MOST_AGE = 600  # seconds between a document that says when it was made and its verification


@dataclass(frozen=True)
class EvidenceRule:
    """One thing that claims must show.

    Args:
        words: what is asked for.
        check: raises an AttestationError unless claims are enough.
    """

    words: str
    check: Callable[[AttestedClaims], None]


def all_of(rules: Sequence[EvidenceRule]) -> EvidenceRule:
    """Every one of some rules; it fails as the first that does not hold."""

    def check(claims: AttestedClaims) -> None:
        for rule in rules:
            rule.check(claims)

    return EvidenceRule("; ".join(rule.words for rule in rules), check)


def any_of(rules: Sequence[EvidenceRule]) -> EvidenceRule:
    """One of some rules, of which there is at least one; it fails as the last."""

    def check(claims: AttestedClaims) -> None:
        for rule in rules[:-1]:
            try:
                return rule.check(claims)
            except AttestationError:
                continue
        return rules[-1].check(claims)

    return EvidenceRule(" or ".join(rule.words for rule in rules), check)


def _rule(name: str, words: str, wrong: Callable[[AttestedClaims], str]) -> EvidenceRule:
    """A rule that fails by its name where something is wrong with claims."""

    def check(claims: AttestedClaims) -> None:
        if why := wrong(claims):
            raise AttestationError(name, why)

    return EvidenceRule(words, check)


def _on_platform(platform: str) -> EvidenceRule:
    """It runs on this platform."""

    def wrong(claims: AttestedClaims) -> str:
        same = claims.platform == platform
        return "" if same else f"expected evidence of {platform}, got that of {claims.platform}"

    return _rule("platform", f"platform {platform}", wrong)


def measured(name: str, value: bytes) -> EvidenceRule:
    """It runs this code."""

    def wrong(claims: AttestedClaims) -> str:
        found = claims.measurements.get(name)
        if found == value:
            return ""
        got = "none" if found is None else found.hex()[:16] + "…"
        return f"expected {name} {value.hex()[:16]}…, got {got}: it runs another build"

    return _rule("measurement", f"{name} = {value.hex()}", wrong)


def minimum_tcb(name: str, least: int) -> EvidenceRule:
    """Its firmware is no older."""

    def wrong(claims: AttestedClaims) -> str:
        found = claims.tcb.get(name)
        enough = found is not None and found >= least
        return "" if enough else f"expected {name} of at least {least}, got {found}; update it"

    return _rule("tcb", f"{name} >= {least}", wrong)


def _status_in(accepted: Sequence[str]) -> EvidenceRule:
    """The vendor's word for its firmware is one of these."""
    words = " or ".join(accepted)

    def wrong(claims: AttestedClaims) -> str:
        good = claims.status in accepted
        return "" if good else f"expected firmware that is {words}, got {claims.status}"

    return _rule("status", f"firmware {words}", wrong)


def _advisories_in(accepted: Sequence[str]) -> EvidenceRule:
    """No security advisory applies but these."""

    def wrong(claims: AttestedClaims) -> str:
        odd = sorted(set(claims.advisories) - set(accepted))
        return f"expected no security advisory that is not accepted, got {odd[0]}" if odd else ""

    but = f" but {', '.join(accepted)}" if accepted else ""
    return _rule("advisory", f"no advisory{but}", wrong)


def _not_debug() -> EvidenceRule:
    """Its owner cannot look inside."""
    why = "expected no debug mode, in which its owner sees all, got it"
    return _rule("debug", "no debug mode", lambda claims: why if claims.debug else "")


def _revocation_checked() -> EvidenceRule:
    """The vendor's revocation list came with the evidence, where there is one."""
    why = "expected the vendor's revocation list in the collateral, got none"
    return _rule(
        "revocation",
        "revocation checked",
        lambda claims: why if claims.revocation is False else "",
    )


def report_data_is(value: bytes) -> EvidenceRule:
    """It was made for this purpose: these bytes were signed with it."""
    why = (
        "expected evidence for this study, session, party, keys and nonces, got evidence that was "
        "made for something else"
    )
    return _rule(
        "report-data",
        f"report data {value.hex()}",
        lambda claims: "" if claims.report_data == value else why,
    )


def made_near(at: int, most: int = MOST_AGE) -> EvidenceRule:
    """If it says when it was made, that is not long ago, nor to come."""

    def wrong(claims: AttestedClaims) -> str:
        if claims.made is None or (apart := abs(claims.made - at)) <= most:
            return ""
        return f"expected evidence made within {most} s of its verification, got {apart} s"

    return _rule("freshness", f"made within {most} s", wrong)


def policy_of(role: AttestedRole) -> EvidenceRule:
    """The rules of one role of a study, or of a policy file."""
    builds = [
        all_of([measured(name, bytes.fromhex(value)) for name, value in build])
        for build in role.measurements
    ]
    rules = [
        _on_platform(role.platform),
        _not_debug(),
        any_of(builds),
        *(minimum_tcb(name, least) for name, least in role.minimum_tcb),
    ]
    if role.platform in ("sgx", "tdx"):
        rules += [_status_in(role.statuses), _advisories_in(role.advisories)]
    if role.platform == "snp" and role.revocation:
        rules.append(_revocation_checked())
    return all_of(rules)
