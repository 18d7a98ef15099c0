"""The evidence that parties showed in a run's sessions, kept in `evidence.json` and verified again.

Kept are the frames themselves: the aggregator's offer with the time of verification, all silos'
nonces, and everybody's evidence with its collateral. They are signed by those who sent them, so
whoever has the file can verify them as the silos did, at the time that they did it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hubbub.assurance import attestation, transcript
from hubbub.assurance.evidence import evidence_file, finding
from hubbub.errors import ProtocolError, UserError
from hubbub.protocol import Roster, Tag, parse
from hubbub.session import AttestedSession, RefusedError, SessionOffer, digest_of
from hubbub.study import Attestation, Study

_TAGS = (Tag.OPEN, Tag.NONCE, Tag.EVIDENCE)


def attested_of(folder: Path, roster: Roster) -> list[evidence_file.Plain]:
    """What was shown in every session of a run in which there was a round, from its transcripts.

    Of one that was interrupted before, not all may have been kept. A run in one process has other
    keys when it is resumed: then a session has a roster of its own.
    """
    return [one for path in transcript.files(folder) if (one := _attested(path, roster))]


def _attested(path: Path, roster: Roster) -> evidence_file.Plain:
    """What was shown in one session; nothing without a round."""
    frames, asked = [], False
    for kept in transcript.read(path):
        asked = asked or kept.tag is Tag.MODEL
        if kept.tag in _TAGS:
            whole = kept.words + (kept.payload or b"") + kept.signature
            frames.append(b64encode(whole).decode())
    header = transcript.read_header(path)
    same = header.roster.digest == roster.digest
    own = {} if same else {"roster": transcript.plain_roster(header.roster)}
    return {"session": header.session.hex(), "frames": frames, **own} if asked else {}


def attested_findings(content: evidence_file.Plain, study: Study) -> Iterator[finding.Finding]:
    """How evidence stands that is verified again, session by session."""
    roster = transcript.roster_of(content["roster"])
    asked, shown = study.attestation, content.get("attested")
    if asked is None or shown is None:
        why = "the study asks for evidence" if asked else "the study asks for none"
        if asked is not None or shown is not None:
            yield finding.wrong(
                "parties showed evidence as the study asks", f"{why}, unlike the file"
            )
        return
    most = 1 + len(roster.parties) + 2 * len(roster.silos)  # frames before the first round
    sessions = [one["session"] for one in content["transcripts"] if one["frames"] > most]
    missing = set(sessions) - {one["session"] for one in shown}
    why = f"{min(missing)[:16]}… is without" if missing else ""
    yield finding.judged("parties showed evidence in every session", why)
    for one in shown:
        own = transcript.roster_of(one["roster"]) if "roster" in one else roster
        yield _finding(one, asked, study, own, _difference(own, roster, study))


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
        f"{claim}, verified at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC", wrong_roster
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
        attests=attestation.StudyAttestation(asked=asked, attester=attestation.MachineAttester()),
        roster=roster,
        study=study.id,
        session=session,
        at=offer.at,
    )
    end = 1 + len(roster.silos)
    attested.checked(frames[end:], digest_of(attested.nonces_of(frames[1:end])))
    return offer.at
