"""Evidence: what an ethics board asks of a run, in one file that the aggregator signs.

`collect` puts together plain values: the study's text, the plan, epsilon for every adversary, the
heads of the transcripts, the digests of the files, and the parts that the silos have signed about
their own ledgers (`part_of`). What it is worth is the business of `claims.py`, whose `check` needs
nothing but the file; with the run's folder more can be checked: see `verification`.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from hubbub import VERSION
from hubbub.core.planning.plan import Plan
from hubbub.core.privacy.arguments import RELATIONS
from hubbub.core.protocol.primitives.identity import Identity, Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import SESSION_BYTES
from hubbub.core.registered import packages
from hubbub.core.study.ask import Ask, asks
from hubbub.core.verification.evidence.audit_result import AUDIT, read_audit
from hubbub.core.verification.evidence.claims import FORMAT, MODEL, spent, trusted
from hubbub.core.verification.evidence.evidence_file import (
    LIBRARIES,
    SPENDING,
    Plain,
    check_ordinary,
    part_words,
    with_signature,
)
from hubbub.core.verification.evidence.silo_parts import attested_of
from hubbub.core.verification.transcript.frame_records import (
    FOLDER,
    files,
    head_of,
    plain_roster,
    read,
    read_header,
)

FILE = "evidence.json"
_MOST = 2**53
_MOST_UNLISTED = 1024  # sessions; a silo's words must not make the file too long to be read
_PART_MEMBERS = {
    *("silo", "study", "sessions", "unlisted", "closed", "ledger", "attempts", "data_set"),
    "signature",
}
# What there is a digest of beside the files of asks, where there is such a file. Transcripts have
# heads, checkpoints their digests in their names, and the report can be written again at any time.
_FILES = ("study.toml", "plan.json", "run.json", "metrics.jsonl", SPENDING, AUDIT, MODEL)
ONE_PROCESS = (
    "that whoever ran the study could be trusted by all: every party ran in one process on one "
    "machine, which saw all records; what is promised holds where the parties run apart"
)


def part_of(
    keys: Keys,
    *,
    study: bytes,
    sessions: Iterable[bytes],
    ledger_head: bytes,
    ledger_rows: int,
    attempts: int,
    unlisted: Iterable[bytes] = (),
    data_set: Mapping[str, Any] | None = None,
) -> Plain:
    """What one silo states of its own ledger, signed with its key of the roster.

    It is the silo's last word: whoever calls this answers no attempt of the study with these keys
    any more (docs/privacy.md P15).

    Args:
        keys, study: the silo's, and the study id.
        sessions: in which it has charged an attempt and that have a transcript.
        unlisted: in which it has charged one too, and of which it knows no transcript.
        ledger_head, ledger_rows: digest and number of the ledger's last row after the study.
        attempts: of the study's training that it has charged, over all sessions; more if its
            evaluations are only due after more of them.
        data_set: {"epsilon", "delta", "relation"} of everything that was ever spent on its data
            set, if it wishes to tell; an epsilon past what is certified is None.
    """
    part = {
        "silo": keys.identity.name,
        "study": study.hex(),
        "sessions": sorted(session.hex() for session in sessions),
        "unlisted": sorted(session.hex() for session in unlisted),
        "closed": True,
        "ledger": {"head": ledger_head.hex(), "rows": int(ledger_rows)},
        "attempts": int(attempts),
        "data_set": None if data_set is None else dict(data_set),
    }
    return {**part, "signature": keys.sign(part_words(part)).hex()}


def checked_part(part: object, silo: Identity, *, study: bytes, sessions: Iterable[bytes]) -> Plain:
    """What `part_of` gave at a silo, after its way through hands that nobody has to trust.

    Raises:
        ValueError: it is not that, or not of this silo, this study and these sessions.
    """
    if not isinstance(part, dict) or set(part) != _PART_MEMBERS:
        raise ValueError("expected the members of a silo's part")
    kept, ledger = {session.hex() for session in sessions}, part["ledger"]
    spending = part["data_set"]
    counts = (part["attempts"], ledger["rows"]) if isinstance(ledger, dict) else ()
    fits = (
        part["silo"] == silo.name
        and part["study"] == study.hex()
        and isinstance(part["sessions"], list)
        and all(isinstance(session, str) and session in kept for session in part["sessions"])
        and isinstance(part["unlisted"], list)
        and len(part["unlisted"]) <= _MOST_UNLISTED
        and all(len(bytes.fromhex(session)) == SESSION_BYTES for session in part["unlisted"])
        and part["closed"] is True
        and set(ledger) == {"head", "rows"}
        and len(bytes.fromhex(ledger["head"])) == 32
        and all(type(count) is int and 0 <= count < _MOST for count in counts)
        and (spending is None or is_spending(spending))
    )
    if not fits or not silo.verifies(bytes.fromhex(part["signature"]), part_words(part)):
        raise ValueError("expected a silo's own words about this study")
    return part


def is_spending(spending: object) -> bool:
    """Whether this is what was ever spent on a data set."""
    if not isinstance(spending, dict) or set(spending) != {"epsilon", "delta", "relation"}:
        return False
    numbers = [spending["delta"], *([] if spending["epsilon"] is None else [spending["epsilon"]])]
    real = all(type(number) in (int, float) and 0 <= number < float("inf") for number in numbers)
    return real and spending["relation"] in RELATIONS


def collect(
    keys: Keys,
    folder: Path,
    *,
    plan: Plan,
    roster: Roster,
    parts: Sequence[Mapping[str, Any]],
    attempts: int,
    trust: Sequence[str] = (ONE_PROCESS,),
) -> str:
    """The evidence of a run, as the text of its file, signed with the aggregator's keys.

    Args:
        keys, roster: the aggregator's, and everybody's public ones.
        folder: of the run, with everything in it but evidence and report; transcripts are sealed.
        plan: that was carried out.
        parts: what `part_of` gave, of every silo that speaks.
        attempts: that were charged for training, finished or not.
        trust: what has to be trusted besides what is said of every run.

    Raises:
        IntegrityError: a transcript was altered.
        StudyError: the audit in the folder is none of this study.
    """
    digests, study = digests_of(folder), plan.study
    content = {
        "format": FORMAT,
        "study": {"name": study.name, "id": study.id.hex(), "toml": study.as_toml()},
        "epsilon": {
            "delta": study.privacy.delta,
            "relation": study.privacy.relation,
            "stated_adversary": plan.stated.adversary,
            "claimed": spent(plan, plan.mechanism.steps),
            "attempts": int(attempts),
            "after_attempts": spent(plan, int(attempts)),
        },
        "plan": plan.to_dict(),
        "silos": [dict(part) for part in parts],
        "transcripts": [summary_of(path) for path in files(folder)],
        "model": digests.get(MODEL),
        "audit": read_audit(folder / AUDIT, plan) if AUDIT in digests else None,
        **({"attested": attested_of(folder, roster)} if study.attestation else {}),
        "files": digests,
        "versions": _versions(),
        "trust": [*trusted(study), *trust],
        "roster": plain_roster(roster),
    }
    return with_signature(content, keys.sign)


def digests_of(folder: Path, listed: Iterable[str] = ()) -> dict[str, str]:
    """SHA-256 of the files of a run, by name; of those that are listed whatever is installed."""
    return {name: _digest(folder / name) for name in names_of(folder, listed)}


def names_of(folder: Path, listed: Iterable[str] = ()) -> list[str]:
    """The names of the files that `digests_of` is about."""
    # No name leads out of the folder, nor to a file under two names.
    plain = (name for name in listed if name == PurePosixPath("/", name).as_posix()[1:])
    names = {*_FILES, *(name for name in plain if ".." not in name.split("/"))}
    named = {folder / name for name in names if _is_file(folder / name)}
    paths = sorted(named | {*files_of(folder, asks())})
    return [path.relative_to(folder).as_posix() for path in paths]


def files_of(folder: Path, wanted: Iterable[Ask]) -> Iterator[Path]:
    """The files in a run's folder that hold what these asks gave."""
    for ask in wanted:
        yield from (folder / name for name in ask.files if (folder / name).is_file())
        yield from (path for pattern in ask.copies for path in sorted(folder.glob(pattern)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long for any file
        return False


def _digest(path: Path) -> str:
    """SHA-256 of a file of a run; how large one may be, only the study says."""
    check_ordinary(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def summary_of(path: Path) -> Plain:
    """A transcript in a few values; IntegrityError if it was altered: its whole chain is read."""
    header, frames, full, head = read_header(path), 0, True, b""
    for kept in read(path):
        frames, head = frames + 1, kept.head
        full = full and kept.payload is not None
    return {
        "file": f"{FOLDER}/{path.name}",
        "session": header.session.hex(),
        "purpose": header.purpose,
        "mode": "full" if full else "hashes",
        "frames": frames,
        "head": (head or head_of(path)).hex(),
    }


def _versions() -> dict[str, str | None]:
    """Of hubbub, Python, the libraries and the packages that add to them."""
    versions: dict[str, str | None] = {"hubbub": VERSION, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {**packages(), **versions}
