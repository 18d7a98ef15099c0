"""Rules: what each refuses, how they are put together, and how a study states them."""

from __future__ import annotations

import copy
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from tests.site.attestation.samples import GOOD

from hubbub import Study
from hubbub.core.errors import RULES, AttestationError, StudyError
from hubbub.core.study.attested_roles import AttestedRole, role_from
from hubbub.core.verification.attestation.policy import (
    AttestedClaims,
    check_claims,
    in_words,
    made_near,
    policy_of,
    report_data_is,
)
from hubbub.core.verification.attestation.study_attestation import judge
from hubbub.site.attestation import dcap

CODE, OTHER = "ab" * 48, "cd" * 48
CLAIMS = AttestedClaims(
    platform="software",
    report_data=bytes(64),
    measurements={"code": bytes.fromhex(CODE)},
    tcb={"svn": 3},
    debug=False,
    until=9,
)
STUDY = """study.name="s"
parties={silos=3,colluders=0,compute_nodes=1}
data={source="hubbub.datasets:heart",records=740}
model={kind="logistic",inputs=[26]}
training={steps=9,sampling="full-batch"}
privacy={epsilon=1,delta=1e-5}
"""
SILO = f"""[attestation.silo]
platform = "software"
measurements = [{{code = "{CODE}"}}]
"""


def asked(**changes: Any) -> AttestedRole:
    return role_from({"platform": "software", "measurements": [{"code": CODE}], **changes})


def rule_that_fails(role: AttestedRole, claims: AttestedClaims) -> str:
    try:
        check_claims(claims, policy_of(role))
    except AttestationError as error:
        return RULES[RULES.index(error.rule)]
    return ""


def test_claims_that_are_enough_pass() -> None:
    assert rule_that_fails(asked(minimum_tcb={"svn": 3}), CLAIMS) == ""


@pytest.mark.parametrize(
    ("rule", "claims"),
    [
        ("platform", replace(CLAIMS, platform="snp")),
        ("measurement", replace(CLAIMS, measurements={"code": bytes(48)})),
        ("measurement", replace(CLAIMS, measurements={})),
        ("tcb", replace(CLAIMS, tcb={"svn": 2})),
        ("tcb", replace(CLAIMS, tcb={})),
        ("debug", replace(CLAIMS, debug=True)),
        ("migration", replace(CLAIMS, migratable=True)),
    ],
)
def test_a_rule_that_does_not_hold_is_named(rule: str, claims: AttestedClaims) -> None:
    assert rule_that_fails(asked(minimum_tcb={"svn": 3}), claims) == rule


def test_one_of_several_builds_is_enough_and_all_of_a_build_is_needed() -> None:
    assert rule_that_fails(asked(measurements=[{"code": OTHER}, {"code": CODE}]), CLAIMS) == ""
    both = replace(CLAIMS, measurements={**CLAIMS.measurements, "more": b"x"})
    of_two = replace(asked(), measurements=((("code", CODE), ("more", "78")),))
    assert rule_that_fails(of_two, both) == ""
    for part in ({"code": CLAIMS.measurements["code"]}, {**both.measurements, "more": b"y"}):
        assert rule_that_fails(of_two, replace(CLAIMS, measurements=part)) == "measurement"


def test_report_data_and_age_are_compared() -> None:
    check_claims(CLAIMS, [report_data_is(bytes(64))])
    with pytest.raises(AttestationError, match="made for something else"):
        check_claims(CLAIMS, [report_data_is(b"\1" + bytes(63))])
    check_claims(CLAIMS, [made_near(10**6)])  # it does not say when it was made
    check_claims(replace(CLAIMS, made=10**6 + 600), [made_near(10**6)])
    for made in (10**6 - 601, 10**6 + 601):
        with pytest.raises(AttestationError, match="601 s"):
            check_claims(replace(CLAIMS, made=made), [made_near(10**6)])


def test_intels_words_are_accepted_only_if_stated() -> None:
    claims = GOOD["sgx"].evidence.verified(GOOD["sgx"].at)
    role = AttestedRole(
        platform="sgx",
        measurements=((("mr_enclave", claims.measurements["mr_enclave"].hex()),),),
    )
    assert rule_that_fails(role, claims) == "status"
    role = replace(role, statuses=("ConfigurationAndSWHardeningNeeded",))
    assert rule_that_fails(role, claims) == "advisory"
    for accepted in claims.advisories:
        assert rule_that_fails(replace(role, advisories=(accepted,)), claims) == "advisory"
    role = replace(role, advisories=("INTEL-SA-00289", "INTEL-SA-00615"))
    assert rule_that_fails(role, claims) == ""


def test_a_chips_report_needs_a_revocation_list_unless_the_study_does_without() -> None:
    claims = GOOD["milan"].evidence.verified(GOOD["milan"].at)
    build = ((("measurement", claims.measurements["measurement"].hex()),),)
    role = AttestedRole(platform="snp", measurements=build)
    assert rule_that_fails(role, claims) == "revocation"
    assert rule_that_fails(replace(role, revocation=False), claims) == ""


def test_rules_are_said_in_words() -> None:
    said = in_words(policy_of(asked(minimum_tcb={"svn": 3})))
    assert said == f"platform software; no debug mode; no migration; code = {CODE}; svn >= 3"


# The study's tables --------------------------------------------------------------------------


def test_what_is_asked_for_is_part_of_the_id() -> None:
    ids = {
        Study.parse(text).id for text in (STUDY, STUDY + SILO, STUDY + SILO.replace(CODE, OTHER))
    }
    assert len(ids) == 3
    stated = STUDY + SILO + "minimum_tcb = {}\n"
    assert Study.parse(stated).id == Study.parse(STUDY + SILO).id


def test_a_study_that_asks_for_evidence_can_be_written_anew() -> None:
    made = Study.parse(STUDY + SILO + "minimum_tcb = {svn = 2}\n")
    assert Study.parse(replace(made, toml="").as_toml()).id == made.id


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"platform": "sev"}, '"sgx", "tdx", "snp", "nitro", "software"'),
        ({"measurements": []}, "ask `hubbub attest measure`"),
        ({"measurements": [{}]}, "state code"),
        ({"measurements": [{"code": "ab"}]}, "code (96 digits)"),
        ({"measurements": [{"code": CODE.upper()}]}, "digits 0-9 a-f"),
        ({"measurements": [{"code": CODE, "pcr0": CODE}]}, "state code"),
        ({"measurements": "x"}, "a list"),
        ({"minimum_tcb": {"snp": 1}}, "under the names svn"),
        ({"minimum_tcb": {"svn": -1}}, "whole numbers from 0"),
        ({"minimum_tcb": {"svn": True}}, "whole numbers from 0"),
        ({"statuses": ["UpToDate"]}, "which has none"),
        ({"advisories": []}, "which has none"),
        ({"revocation": False}, "there is no choice"),
        ({"debug": True}, "expected one of the keys"),
    ],
)
def test_a_malformed_role_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError) as caught:
        asked(**changes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("attestation.silo = 3\n", "expected a table [attestation.silo]"),
        ("[attestation.relay]\n", "expected one of the keys aggregator, node, silo"),
        (SILO.replace("platform", "platforms"), "did you mean platform?"),
    ],
)
def test_a_malformed_table_is_refused(text: str, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        Study.from_table(tomllib.loads(STUDY + text))
    assert words in str(caught.value)


def test_nodes_that_are_not_there_are_asked_for_nothing() -> None:
    text = STUDY.replace(",compute_nodes=1", "") + SILO.replace(".silo", ".node")
    with pytest.raises(StudyError, match=r"without parties\.compute_nodes"):
        Study.parse(text)


@pytest.mark.parametrize("name", ["sgx", "tdx", "milan", "nitro"])
def test_real_evidence_is_enough_for_a_study_that_pins_it(name: str) -> None:
    """From bytes to the verdict, as in a session; for other report data it is not enough."""
    sample = GOOD[name]
    claims = sample.evidence.verified(sample.at)
    first = next(iter(claims.measurements))
    role = AttestedRole(
        platform=claims.platform,
        measurements=(((first, claims.measurements[first].hex()),),),
        statuses=(claims.status,),
        advisories=claims.advisories,
        revocation=False,
    )
    assert judge(sample.evidence, role, claims.report_data, sample.at) == claims
    with pytest.raises(AttestationError) as caught:
        judge(sample.evidence, role, b"\1" * 64, sample.at)
    assert caught.value.rule == "report-data"
    if claims.made is not None:
        with pytest.raises(AttestationError) as caught:
            judge(sample.evidence, role, claims.report_data, claims.made + 601)
        assert caught.value.rule == "freshness"


@pytest.mark.parametrize(
    ("rule", "attributes"),
    [
        ("", "0000001000000000"),
        ("", "000000d800000080"),
        ("debug", "0100001000000000"),
        ("debug", "2000001000000000"),
        ("migration", "0000003000000000"),
        ("platform", "0001001000000000"),
        ("platform", "0000041000000000"),
        ("platform", "0000001000000001"),
    ],
    ids=[
        "as it is", "all that is harmless", "debug", "profiled", "migratable", "bit 8",
        "extended service", "bit 56",
    ],
)  # fmt: skip
def test_a_trust_domains_attributes_are_judged(rule: str, attributes: str) -> None:
    """A real quote's verified claims, with other attributes in them."""
    assert domain_rule(td_attributes=attributes) == rule


def test_a_trust_domain_that_is_bound_to_another_is_refused() -> None:
    """A service domain, such as one that moves it, is named in reports of TDX 1.5."""
    assert domain_rule("00" * 48) == ""
    assert domain_rule("00" * 47 + "01") == "migration"


def test_a_quote_holds_until_the_first_end_of_what_bears_it_out() -> None:
    sample = GOOD["tdx"]
    said = dict(dcap.verified_quote(sample.quote, sample.collateral, sample.at, dcap.TDX_TEE))
    ends = ("earliest_expiration_date", "qe_iden_earliest_expiration_date")
    for found in ((5, 7), (7, 5)):
        assert dcap.claims_of_domain(said | dict(zip(ends, found, strict=True))).until == 5


def domain_rule(service: str = "", **changes: str) -> str:
    """The rule by which a trust domain is refused; "" if none."""
    sample = GOOD["tdx"]
    said = copy.deepcopy(
        dict(dcap.verified_quote(sample.quote, sample.collateral, sample.at, dcap.TDX_TEE))
    )
    ((_, body),) = said["report"].items()
    body.update(changes)
    if service:
        said["report"] = {"TD15": {"base": body, "tee_tcb_svn2": "", "mr_service_td": service}}
    try:
        claims = dcap.claims_of_domain(said)
    except AttestationError as error:
        return error.rule
    build = ((("mr_td", claims.measurements["mr_td"].hex()),),)
    return rule_that_fails(AttestedRole(platform="tdx", measurements=build), claims)
