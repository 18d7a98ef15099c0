"""Whatever is fed to what reads policies, builds and frames: nothing but the project's errors."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.site.attestation.parties import NOW, Parties, role_of, study_of

from hubbub.core.errors import HubbubError, StudyError, UserError
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.session.attestation_exchange import AttestedSession
from hubbub.core.study.attested_roles import PLATFORMS, role_from
from hubbub.core.verification.attestation.policy import in_words, policy_of
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.core.verification.evidence.evidence_file import MALFORMED
from hubbub.core.verification.evidence.silo_parts import SiloWords, attested_findings
from hubbub.core.verification.transcript.frame_records import plain_roster
from hubbub.desk.cli.attest_commands import _from_base64, _time
from hubbub.site.attestation.devices import MachineAttester, of_build

KEYS = ("platform", "measurements", "minimum_tcb", "statuses", "advisories", "revocation", "x")
NAMES = sorted({name for one in PLATFORMS.values() for name in (*one.measurements, *one.versions)})
HEX = st.sampled_from(["ab" * 32, "ab" * 48, "AB" * 48, "", "ab"])
SIMPLE = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), HEX)
VALUES = st.one_of(
    SIMPLE,
    st.sampled_from(sorted(PLATFORMS)),
    st.lists(SIMPLE, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), SIMPLE, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(NAMES), HEX, max_size=3), max_size=3),
)
SESSION = Parties(study=study_of({"silo": role_of()}))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from(sorted(PLATFORMS)))
def test_a_policy_is_read_or_refused(table: dict[str, object], platform: str) -> None:
    for one in (table, table | {"platform": platform}):
        with contextlib.suppress(StudyError):
            role = role_from(one)
            assert role_from(role_from_table(role)) == role
            assert in_words(policy_of(role)).isprintable()


def role_from_table(role: object) -> dict[str, object]:
    """The table of a role, without what its platform does not have."""
    table, known = role.to_dict(), PLATFORMS[role.platform]
    for key in () if known.graded else ("statuses", "advisories"):
        del table[key]
    if not known.revocable:
        del table["revocation"]
    return table


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=64), st.text(max_size=64).map(str.encode)), st.booleans())
def test_a_build_is_read_or_refused(tmp_path: Path, content: bytes, wrapped: bool) -> None:
    text = b'{"Measurements": {"PCR0": ' + content + b"}}" if wrapped else content
    (tmp_path / "build").write_bytes(text)
    with contextlib.suppress(UserError):
        of_build(tmp_path / "build")


@given(st.text(max_size=30), st.binary(max_size=40))
def test_options_are_read_or_refused(text: str, content: bytes) -> None:
    with contextlib.suppress(UserError):
        _time(text)
    assert isinstance(_from_base64(content), bytes)


@given(st.data())
def test_frames_of_evidence_are_read_or_refused(data: st.DataObject) -> None:
    """Any payload that a party may sign, under any tag, in any order."""
    setup = SESSION.set_up
    session = AttestedSession(
        attests=StudyAttestation(asked=SESSION.study.attestation, attester=MachineAttester()),
        roster=SESSION.roster,
        study=setup.study,
        session=setup.session,
        at=NOW,
    )
    tags = st.sampled_from([Tag.NONCE, Tag.EVIDENCE, Tag.OPEN])
    senders = data.draw(st.lists(st.integers(0, 3), max_size=4))
    frames = [
        session.frame(data.draw(tags), i, data.draw(st.binary(max_size=40))).sealed(SESSION.keys[i])
        for i in senders
    ] + data.draw(st.lists(st.binary(max_size=200), max_size=1))
    silos = frozenset({1, 2, 3})
    for read in (
        lambda found: session.nonces_of(found, silos),
        lambda found: session.checked(found, bytes(32), silos),
    ):
        with contextlib.suppress(HubbubError):
            read(frames)


@given(
    st.recursive(
        SIMPLE,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["session", "frames", "roster"]), inner),
        ),
        max_leaves=8,
    )
)
def test_kept_evidence_is_read_or_refused(shown: object) -> None:
    """What `evidence.claims` guards against is all that comes out."""
    content: dict[str, object] = {
        "transcripts": [{"session": "ab", "frames": 99}],
        "attested": shown,
    }
    content["roster"] = plain_roster(SESSION.roster)
    # MALFORMED has TypeError: arguments that do not fit are to fail here, and not within.
    findings = attested_findings(content, SESSION.study, SiloWords(wrongs=(), doubtful=()))
    with contextlib.suppress(*MALFORMED):
        list(findings)
