"""The evidence that parties showed in a run's sessions, kept in `evidence.json` and verified again.

Kept are the frames themselves: the aggregator's offer with the time of verification, its ROLL, the
silos' nonces, and everybody's evidence with its collateral. They are signed by those who sent them,
so whoever has the file can verify them as the silos did, at the time that they did it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hubbub.core.errors import ProtocolError, UserError
from hubbub.core.protocol.agreement.roll_call import RollCall
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag, parse
from hubbub.core.session.attestation_exchange import AttestedSession, digest_of
from hubbub.core.session.session_offer import RefusedError, SessionOffer
from hubbub.core.study.attested_roles import Attestation
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.core.verification.evidence import evidence_file, finding
from hubbub.core.verification.evidence.silo_parts import SiloWords
from hubbub.core.verification.transcript.frame_records import files, read, read_header
from hubbub.core.verification.transcript.transcript_header import plain_roster, roster_of

_TAGS = (Tag.OPEN, Tag.ROLL, Tag.NONCE, Tag.EVIDENCE)


def attested_of(folder: Path, roster: Roster) -> list[evidence_file.Plain]:
    """What was shown in every session of a run in which there was a round, from its transcripts.

    Of one that was interrupted before, not all may have been kept. A run in one process has other
    keys when it is resumed: then a session has a roster of its own.
    """
    return [one for path in files(folder) if (one := _attested(path, roster))]


def _attested(path: Path, roster: Roster) -> evidence_file.Plain:
    """What was shown in one session; nothing without a round."""
    frames, asked = [], False
    for kept in read(path):
        asked = asked or kept.tag is Tag.MODEL
        if kept.tag in _TAGS:
            frames.append(b64encode(kept.frame).decode())
    header = read_header(path)
    same = header.roster.digest == roster.digest
    own = {} if same else {"roster": plain_roster(header.roster)}
    return {"session": header.session.hex(), "frames": frames, **own} if asked else {}


def attested_findings(
    content: evidence_file.Plain, study: Study, words: SiloWords
) -> Iterator[finding.Finding]:
    """How evidence stands that is verified again, session by session."""
    roster = roster_of(content["roster"])
    asked, shown = study.attestation, content.get("attested")
    if asked is None or shown is None:
        why = "the study asks for evidence" if asked else "the study asks for none"
        if asked is not None or shown is not None:
            yield finding.wrong(
                "parties showed evidence as the study asks", f"{why}, unlike the file"
            )
        return
    rosters = [roster_of(one["roster"]) if "roster" in one else roster for one in shown]
    listed = {one["session"] for one in content["transcripts"]}
    findings = [
        _finding(one, asked, study, own, _difference(own, roster, study))
        if one["session"] in listed
        else finding.wrong("evidence is of the run's sessions", "of one there is no transcript")
        for one, own in zip(shown, rosters, strict=True)
    ]
    yield _of_every_session(content, rosters, words, findings)
    yield from findings
    for one, own in zip(shown, rosters, strict=True):
        if own.digest != roster.digest:
            yield finding.not_verifiable(
                f"that the keys in the session {one['session'][:16]}… are the parties': they are "
                "not those of the roster, as after a run in one process was resumed"
            )


def _of_every_session(
    content: evidence_file.Plain,
    rosters: list[Roster],
    words: SiloWords,
    found: list[finding.Finding],
) -> finding.Finding:
    """Whether evidence that holds is there of every session in which silos have charged an attempt.

    Which these are, the silos have signed; how many messages a session had, the aggregator says.
    """
    claim = "parties showed evidence in every session with an attempt"
    shown = [one["session"] for one in content["attested"]]
    listed = {one["session"]: one["frames"] for one in content["transcripts"]}
    roster = roster_of(content["roster"])
    most = 2 + len(roster.parties) + 2 * len(roster.silos)  # no more come before the first round
    long = {session for session, frames in listed.items() if frames > most}
    if len(set(shown)) < len(shown):
        return finding.wrong(claim, "a session is shown twice")
    missing = ((words.vouched - words.unlisted) | long) - set(shown)
    if missing:
        return finding.wrong(claim, f"{min(missing)[:16]}… is without")
    others = {one for one, own in zip(shown, rosters, strict=True) if own.digest != roster.digest}
    if unshown := words.sessions - words.unlisted - set(shown):
        doubt = f"so few silos as may lie say that they answered in {min(unshown)[:16]}…"
    elif not all(one.holds and one.is_checked for one in found):
        doubt = "what was shown in some does not hold, or was not checked"
    elif words.unlisted:
        doubt = f"of {min(words.unlisted)[:16]}… there is no transcript"
    elif others & words.sessions:
        doubt = f"in {min(others & words.sessions)[:16]}… it was shown for other keys"
    else:
        doubt = "" if words.are_final else words.doubt
    if doubt:
        return finding.not_verifiable(f"that {claim}: {doubt}")
    return finding.rederived(claim)


def _difference(own: Roster, roster: Roster, study: Study) -> str:
    """Why a session cannot have had a roster of its own; "" if it can."""
    names = [(party.name, party.role) for party in own.parties]
    if names != [(party.name, party.role) for party in roster.parties]:
        return "its roster has other parties"
    other = study.parties.roster and own.digest.hex() != study.parties.roster
    return "the study names another roster" if other else ""


def _finding(
    one: evidence_file.Plain, asked: Attestation, study: Study, roster: Roster, wrong_roster: str
) -> finding.Finding:
    """One session, verified again."""
    who = ", ".join(f"{role} ({table['platform']})" for role, table in asked.to_dict().items())
    claim = f"in the session {str(one['session'])[:16]}… the evidence holds of every {who}"
    try:
        at = _replayed(one, asked, study, roster)
    except (ProtocolError, RefusedError) as error:
        return finding.wrong(claim, error)
    except UserError as error:  # what verifies it is not installed
        return finding.not_checked(f"{claim} ({error})")
    return finding.judged(
        f"{claim}, verified at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC, as the offer "
        "states it",
        wrong_roster,
    )


def _replayed(one: evidence_file.Plain, asked: Attestation, study: Study, roster: Roster) -> int:
    """When a session's evidence held; ProtocolError or RefusedError if it did not."""
    session = bytes.fromhex(one["session"])
    frames = [b64decode(text, validate=True) for text in one["frames"]]
    opening = parse(frames[0], roster, study=study.id, session=session)
    if opening.tag is not Tag.OPEN or opening.sender != 0:
        raise ProtocolError("expected the aggregator's offer first, got another frame")
    offer = SessionOffer.read(opening.payload, roster.name(0))
    attested = AttestedSession(
        attests=StudyAttestation(asked=asked),
        roster=roster,
        study=study.id,
        session=session,
        at=offer.at,
    )
    silos, shown = _rolled(frames[1], roster, study, session), frames[2:]
    nonces, evidence = shown[: len(silos)], shown[len(silos) :]
    attested.checked(evidence, digest_of(attested.nonces_of(nonces, silos)), silos)
    return offer.at


def _rolled(data: bytes, roster: Roster, study: Study, session: bytes) -> frozenset[int]:
    """The silos of a session, from its ROLL, of which there must be enough (P29)."""
    quorum = study.parties.silos - study.parties.dropouts
    call = RollCall(roster=roster, study=study.id, session=session, quorum=quorum)
    return call.take(data).silos
