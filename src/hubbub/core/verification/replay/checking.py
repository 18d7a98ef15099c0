"""`hubbub verify DIR`: everything about a run that can be done again is done again.

First the bytes: what was altered is named, and nothing is built on it. Then
the study and its plan; then every session of the transcript is played
(`replayed_session.py`), which gives the model bit for bit; then the attempts are counted, and at
last come the claims of the evidence itself. This file knows where a run keeps what; it holds no
data of any silo and runs no code that a study names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import json_value
from hubbub.core.errors import EffortError, HubbubError, IntegrityError, UserError
from hubbub.core.number_format import few, several
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query, Scores, Turn
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.offer import round_parameters_of
from hubbub.core.study.ask import asks
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import STANDARDISED
from hubbub.core.verification.evidence.audit_result import AUDIT
from hubbub.core.verification.evidence.claims import (
    by_version,
    check_content,
    remade,
    within_seconds,
)
from hubbub.core.verification.evidence.collecting import (
    FILE,
    digests_of,
    files_of,
    is_spending,
    names_of,
    summary_of,
)
from hubbub.core.verification.evidence.evidence_file import (
    CLOSE,
    MALFORMED,
    MODEL,
    RESTORE,
    SPENDING,
    Finding,
    Plain,
    difference,
    judged,
    load,
    not_checked,
    not_verifiable,
    read_plain,
    read_whole,
    rederived,
    signed,
    wrong,
)
from hubbub.core.verification.evidence.silo_parts import count_of
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.replay.replayed_session import (
    Player,
    Replay,
    ReplayedSession,
    other_player,
)
from hubbub.core.verification.replay.session_findings import (
    Sessions,
    attempt_findings,
    attempts_shown,
    attempts_within,
    key_findings,
    query_count_findings,
    replay_findings,
    told_findings,
)
from hubbub.core.verification.transcript.frame_records import FOLDER, Header, files, read_header

# Whether the files of a run are, byte for byte, what was written, and the metrics' epsilon is due.
#
# Files are compared with the digests in the evidence, transcripts with their chains and with the
# heads in the evidence, the evidence with its signature. Nothing is made again here, so it is
# quick; what is damaged is named, with what to do, and is no reason to blame anybody. Of the
# metrics, which are in no transcript, every row must tell the epsilon that was spent by then.

METRICS, NOTES = "metrics.jsonl", "run.json"
_SCORES = "replay.scores"  # what a finding is about
_ROUNDING = 1e-9  # relative: the account is made again, perhaps on another machine
_CLAIM = (
    "metrics.jsonl states the epsilon that each step had spent, and at the end that of the "
    "attempts that the evidence counts"
)


def integrity_findings(folder: Path) -> Iterator[Finding]:
    """Files and transcripts of a run that are not what was written; nothing is made again."""
    path = folder / FILE
    try:
        content = load(path) if path.exists() else None
    except HubbubError as error:
        yield wrong(f"{path} is what the aggregator signed", error)
        return
    contents: dict[str, Plain] = {}
    for file in files(folder):
        try:
            contents[f"{FOLDER}/{file.name}"] = summary_of(file)
        except HubbubError as error:
            yield wrong(f"{file} agrees with the transcript of its session", error)
    if content is not None:
        try:
            yield from _changed(folder, content, contents)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            yield wrong(f"{path} lists the run's files", f"{type(error).__name__}: {error}")


def altered_files(folder: Path, content: Plain) -> Iterator[Finding]:
    """Files of a run that are not those of its evidence; transcripts have heads instead.

    Errors are those of reading what is not as the format says, see `MALFORMED`.
    """
    listed, there = content["files"], digests_of(folder, content["files"])
    for name in sorted({*listed, *there}):
        if name not in there or listed.get(name) != there[name]:
            yield wrong(f"{folder / name} is the file that {FILE} lists", _how(listed, there, name))


def _changed(folder: Path, content: Plain, summaries: Mapping[str, Plain]) -> Iterator[Finding]:
    """Files and transcripts that are not those of the evidence."""
    yield from altered_files(folder, content)
    known = {transcript["file"]: transcript for transcript in content["transcripts"]}
    broken = {f"{FOLDER}/{file.name}" for file in files(folder)} - set(summaries)
    for name in sorted({*known, *summaries} - broken):
        if known.get(name) != summaries.get(name):
            why = _how(known, summaries, name)
            yield wrong(f"{folder / name} is the transcript that {FILE} lists", why)


def _how(listed: Mapping[str, object], there: Mapping[str, object], name: str) -> str:
    if name not in there:
        return "it is missing; restore it from a backup"
    if name not in listed:
        return "the evidence does not list it, so it was added later: remove it"
    return f"it was altered or cut short; {RESTORE}"


def score_findings(
    path: Path, plan: Plan, planned: PlannedQuery[Query], main: Course, done: Sessions
) -> Finding:
    """Whether rows state the scores of a query that is asked between the main query's steps.

    A sum whose row was lost in an interruption has none: it is the last of its session.
    """
    sessions = [played for header, played in done if header.purpose == planned.purpose]
    sums = [(number, played) for played in sessions for number in played.sums]
    claim = f"{METRICS} states the scores that sums for {planned.purpose} gave"
    if any(played.unseen for played in sessions):
        return not_verifiable(f"that {claim}").covering(_SCORES)
    scores: dict[int, Plain] = {}
    for number, played in sums:
        step = number * planned.mechanism.every
        states = main.states_after(step)
        if step in scores or (states and played.asked_at[number] not in states):
            why = f"silos were asked at another model than that of step {step}, or twice"
            return wrong(claim, f"{why}; ask the aggregator to account for it").covering(_SCORES)
        scores[step] = _scores(plan, planned, played.sums[number])
    why, names, lacking = "", _score_names(plan), {*scores}
    try:
        # Before its first row an interrupted run has no such file.
        text = read_whole(path) if path.exists() else b""
        for row in map(json_value, text.splitlines()):
            stated = {name: row[name] for name in row if name in names}
            if stated and not why:
                why = difference(stated, scores.get(row["step"], {}))
                lacking -= {row["step"]}
    except MALFORMED as error:
        why = f"it cannot be read ({type(error).__name__})"
    for played in sessions:
        there = [number * planned.mechanism.every not in lacking for number in played.sums]
        if there != sorted(there, reverse=True):
            why = why or "a row between others lacks them"
    if lacking and not why:
        which = f"no row does of those after step {', '.join(map(str, sorted(lacking)))}"
        return not_verifiable(f"that {claim}: {which}, as after an interruption").covering(_SCORES)
    return main.judged(claim, f"{why}; {RESTORE}" if why else "").covering(_SCORES)


def _scores(plan: Plan, planned: PlannedQuery[Query], total: NDArray[np.float64]) -> Scores:
    return planned.query.scores_of(total, plan.study, planned.total_sigma)


def _score_names(plan: Plan) -> set[str]:
    """What rows of metrics may state that noisy sums gave."""
    nothing = ((one, np.zeros(one.query.numbers or 0)) for one in _between(plan))
    return {name for planned, total in nothing for name in _scores(plan, planned, total)}


def _between(plan: Plan) -> list[PlannedQuery[Query]]:
    """What is asked between the main query's steps."""
    return [planned for planned in plan.beside if planned.query.turn is Turn.BETWEEN]


def row_findings(
    path: Path, plan: Plan, content: Plain, done: Sessions, *, has_scores: bool = False
) -> Iterator[Finding]:
    """Whether every row's epsilon is its step's, and the last one's that of all attempts counted.

    The metrics themselves were measured by the aggregator on records that are not here, but for
    scores of noisy sums, which `score_findings` has looked at where the run `has_scores`.
    """
    try:
        rows = [json_value(line) for line in read_whole(path).splitlines()]
        measured = {name for row in rows for name in row} - {"step", "epsilon"}
        measured -= _score_names(plan) if has_scores else set()
        steps = [count_of(row["step"]) for row in rows]
        shown = [float(row["epsilon"]) for row in rows]
        counted = int(content["epsilon"]["attempts"])
        charged = [attempts_within(plan, done, counted, step) for step in steps]
        # Attempts after the last step, and those without a sum, were spent as well.
        charged[-1] = counted, counted
        due = [tuple(map(plan.epsilon_after, ends)) for ends in charged]
    except EffortError:
        yield not_checked(_CLAIM).on(METRICS)
        return
    except MALFORMED as error:
        why = f"it cannot be read ({type(error).__name__}); {RESTORE}"
        yield wrong(_CLAIM, why).on(METRICS)
        return
    odd = [
        f"row {number} states {epsilon:.6g}, but {most if epsilon > most else least:.6g} was spent"
        for number, (epsilon, (least, most)) in enumerate(zip(shown, due, strict=True), 1)
        if not least * (1 - _ROUNDING) <= epsilon <= most * (1 + CLOSE)
    ]
    # Attempts that were charged after the last step have a row of their own.
    once = steps[:-1] if steps[-2:] == steps[-1:] * 2 and shown[-2] < shown[-1] else steps
    if once != sorted({*once}) or once[-1] > plan.mechanism.steps:
        odd.append(f"its steps do not go up to {plan.mechanism.steps} at most, each once")
    yield judged(_CLAIM, f"{odd[0]}; {RESTORE}" if odd else "").on(METRICS)
    if measured:
        yield not_verifiable(
            f"what {METRICS} says of {few(sorted(measured), 12)}, which nothing here computes"
        ).on(METRICS)


def notes_findings(path: Path, study: Study, headers: Iterable[Header]) -> Iterator[Finding]:
    """Whether what a run notes of itself, which says if it is a baseline, fits its transcripts."""
    claim = f"{path.name} names the study and all sessions of the transcripts"
    try:
        stated, there = read_plain(path), list(headers)
        noted = stated["sessions"]
        fits = stated["study"] == study.id.hex() and all(
            stated["baseline"] is None and header.session.hex() in noted.get(header.purpose, ())
            for header in there
        )
        why = "" if fits else "it is of another run"
    except MALFORMED as error:
        why = f"it cannot be read ({type(error).__name__})"
    yield judged(claim, f"{why}; {RESTORE}" if why else "").on(NOTES)
    yield not_verifiable(f"what {path.name} says of ledgers, which nothing here computes").on(NOTES)


def spending_findings(path: Path, study: Study, content: Plain) -> Iterator[Finding]:
    """Whether what the records have spent in all is what the silos have signed of it."""
    claim = f"{path.name} states the epsilon that the silos signed for all that was ever spent"
    asked = (study.privacy.delta, study.privacy.relation)
    try:
        stated = read_plain(path)
        total = {name: stated[name] for name in ("epsilon", "delta", "relation")}
        told = [part["data_set"] for part in content["silos"] if part["data_set"] is not None]
        if not all(map(is_spending, (total, *told))):
            raise ValueError("no epsilon at a delta")
        like = [one for one in told if (one["delta"], one["relation"]) == asked]
        epsilon, *signed_for = (
            inf if one["epsilon"] is None else float(one["epsilon"]) for one in (total, *like)
        )
    except MALFORMED as error:
        yield wrong(claim, f"it cannot be read ({type(error).__name__}); {RESTORE}").on(SPENDING)
        return
    worst = max(signed_for, default=0.0)
    if (total["delta"], total["relation"]) != asked:
        yield wrong(claim, f"it is at another delta or relation than the study; {RESTORE}")
    elif epsilon < worst or (epsilon > worst and len(like) == study.parties.silos):
        yield wrong(claim, f"it states {epsilon:.6g}, they signed {worst:.6g}; {RESTORE}")
    elif len(like) == study.parties.silos:
        yield signed(claim)
    else:
        yield not_verifiable(f"that {claim}: not all have told it")
    yield not_verifiable(f"what {path.name} says besides, which nothing here computes").on(SPENDING)


_BEYOND = (
    "plan.json follows from study.toml",
    "sums, attempts and the model follow from the transcripts",
)
_PLANNED = ("study.toml", "plan.json")
_UNREAD = {FILE, FOLDER, "checkpoints", "lock"}  # what nobody reads who was given a run
_NOTHING = np.zeros(0, dtype=np.float32)
_NO_EVIDENCE = (
    f"there is no {FILE}, so nothing shows that a transcript is complete, or what the "
    "ledgers contain; only a finished run has one"
)


def verify(
    folder: Path, look: Callable[[], None] = lambda: None, *, thorough: bool = False
) -> list[Finding]:
    """What of a run holds, what does not, and what nobody can show; UserError if there is no run.

    `look` is called after every attempt that was played, to show progress. Sums are made again
    whatever they take, which is in proportion to the transcripts; the accounts take seconds at
    most, whatever the study asks for, unless the check is to be `thorough`.
    """
    with within_seconds(thorough=thorough):
        return _verified(folder, look)


def _verified(folder: Path, look: Callable[[], None]) -> list[Finding]:
    """The findings, within the work that is allowed for accounts."""
    if not any((folder / name).exists() for name in ("plan.json", FILE, "transcript")):
        raise UserError(
            f"expected the folder of a run at {folder}, found no {FILE} in it; name the folder "
            "that --out named"
        )
    findings = list(integrity_findings(folder))
    if findings:
        return findings
    content = load(folder / FILE) if (folder / FILE).exists() else None
    findings = [_intact(folder, content)]
    try:
        study = Study.parse(read_whole(folder / "study.toml").decode())
        stated = read_plain(folder / "plan.json")
        remade_plan, beyond = _planned(study, stated)
    except MALFORMED as error:
        why = by_version(f"{error}; {RESTORE}", content or {})
        return [*findings, wrong("study.toml and plan.json can be read", why)]
    claimed = {} if content is None else content.get("study")
    if content is not None and (type(claimed) is not dict or claimed.get("id") != study.id.hex()):
        why = f"it is about another study; {RESTORE}"
        return [*findings, wrong(f"{FILE} is about the study in study.toml", why)]
    claims = [not_verifiable(_NO_EVIDENCE)] if content is None else check_content(content)
    if content is not None:
        findings += _beside(folder, study, content, claims)
    if beyond:
        return [*findings, *map(not_checked, _BEYOND), *claims]
    if remade_plan is None:
        findings += _without_plan(stated, content)
    else:
        findings.append(_alike(_BEYOND[0], stated, remade_plan.to_dict(), content).on(*_PLANNED))
        if findings[-1].holds:
            # Evidence of which anything is false proves nothing about attempts and keys.
            sound = content if all(one.holds for one in [*findings, *claims]) else None
            done: list[tuple[Header, ReplayedSession]] = []
            findings += _played(folder, remade_plan, sound, done, look)
            if sound is not None:
                has_scores = any(_SCORES in one.about for one in findings)
                rows = folder / METRICS
                findings += row_findings(rows, remade_plan, sound, done, has_scores=has_scores)
    findings += _uncomputed(names_of(folder) if content is None else content["files"], findings)
    return findings + claims


def _beside(
    folder: Path, study: Study, content: Plain, claims: Sequence[Finding]
) -> Iterator[Finding]:
    """Files that a run of this study does not give, whose readers would believe them; its audit."""
    given = {*files_of(folder, study.asks)}
    given -= {folder / STANDARDISED} if study.data.standardise is None else set()
    models = set() if any(ask.trains for ask in study.asks) else {folder / MODEL}
    for path in sorted({*files_of(folder, asks()), *filter(Path.exists, models)} - given):
        yield wrong(f"{path} is of what the study asks for", "it asks for no such thing; remove it")
    listed = {*content["files"]}
    folders = {parent.as_posix() for name in listed for parent in PurePosixPath(name).parents}
    there = {path for own in folders for path in (folder / own).iterdir()}
    names = {path.relative_to(folder).as_posix() for path in there}
    if others := sorted(names - folders - listed - _UNREAD):
        yield not_verifiable(
            f"that these say what the other files say: {few(others, 20)}; {FILE} has no digest of "
            "them; write them again, as with hubbub report"
        )
    if (folder / NOTES).exists():
        yield from notes_findings(folder / NOTES, study, map(read_header, files(folder)))
    if (folder / AUDIT).exists():
        yield _audit_kept(folder / AUDIT, content).on(AUDIT)
    # Only words that were verified say what silos have signed, and each silo once.
    if (folder / SPENDING).exists() and all(one.holds for one in claims):
        yield from spending_findings(folder / SPENDING, study, content)


def _uncomputed(names: Iterable[str], findings: Sequence[Finding]) -> list[Finding]:
    """The files of a run of which no finding speaks."""
    untold = sorted({*names} - {name for one in findings for name in one.files})
    said = ", ".join(untold)
    return [not_verifiable(f"what {said} say, which nothing here computes")] if said else []


def _planned(study: Study, stated: Plain) -> tuple[Plan | None, bool]:
    """The plan that is made again, if it can be; and whether it would take too long."""
    try:
        return remade(study, stated["dimension"]), False
    except EffortError:
        return None, True


def _without_plan(stated: Plain, content: Plain | None) -> Iterator[Finding]:
    """What can be said where a plan cannot be made again, and nothing played without one."""
    if content is None:
        yield not_verifiable(
            "the plan: only the study's own code or data can say how many features a record has"
        ).on(*_PLANNED)
    else:
        claim = f"plan.json is the plan of {FILE}"
        yield _alike(claim, stated, content.get("plan")).on(*_PLANNED)
    yield not_verifiable("that sums, attempts and the model follow from the transcripts")


def _audit_kept(path: Path, content: Plain) -> Finding:
    """Whether the evidence says of an audit what its file does."""
    claim = f"{path.name} is the audit that {FILE} contains"
    try:
        return _alike(claim, read_plain(path), content.get("audit"))
    except MALFORMED as error:
        return wrong(claim, f"it cannot be read ({type(error).__name__})")


def _alike(claim: str, stated: Plain, made: Plain | None, content: Plain | None = None) -> Finding:
    """Whether plain values that were written down are those that follow."""
    try:
        why = difference(stated, made)
    except (OverflowError, RecursionError):
        why = "it has something past all measure"
    told = by_version(why, content or {})
    return judged(claim, f"{why}; {RESTORE}" if why and told == why else told)


def steps_of(folder: Path) -> int:
    """How many attempts there may be to play; 0 if the study cannot be read."""
    try:
        return main_of(Study.parse(read_whole(folder / "study.toml").decode())).mechanism.steps
    except MALFORMED:
        return 0


def _intact(folder: Path, content: Plain | None) -> Finding:
    count = len(files(folder))
    if content is None:
        return rederived(f"{several(count, 'transcript')}, each a complete chain")
    kept = several(len(content["files"]), "file")
    return rederived(f"{kept} and {several(count, 'transcript')}: all that {FILE} lists")


def _played(
    folder: Path,
    plan: Plan,
    content: Plain | None,
    done: list[tuple[Header, ReplayedSession]],
    look: Callable[[], None],
) -> Iterator[Finding]:
    """The sessions, which are added to `done`, the attempts and the model."""
    headers = {path: read_header(path) for path in files(folder)}
    if len({header.session for header in headers.values()}) < len(headers):
        yield wrong("each transcript is of another session", f"two are of the same; {RESTORE}")
        return
    # A header's number is the aggregator's word: what is asked last is not played before the main
    # query, whose end it is asked at.
    paths = sorted(headers, key=lambda path: (_place(plan, headers[path]), path.name))
    if why := _why_nothing(folder, paths, plan, headers):
        yield not_verifiable(f"{why}: nothing to replay")
        # Whoever could call a session by another name would have none of it looked at.
        yield from _misnamed(plan, headers)
        yield from attempt_findings(plan, [], content)
        return
    initial = plan.main.query.initial(plan)
    between = _between(plan)
    courses = {
        planned.purpose: Course(planned, planned.query.start(initial), keeps_states=bool(between))
        for planned in plan.stepped
        if not planned.query.is_asked_last
    }
    for path in paths:
        header, name = headers[path], f"{FOLDER}/{path.name}"
        if not _is_earlier(plan, header):
            _begin_last(plan, courses, done)
        try:
            played = _replay(path, header, plan, courses.get(header.purpose)).play(path, look)
        except HubbubError as error:
            yield wrong(f"{name} fits", error)
            return
        done.append((header, played))
        course = courses.get(header.purpose)
        stepped = course is not None and course.led is not None
        yield from replay_findings(name, header, played, steps=stepped)
        if played.withheld and plan.study.transcript == "full":
            why = 'the study says transcript = "full", as approved'
            yield wrong(f"{name} has all vectors", f"{played.withheld} rounds lack some; {why}")
        yield from _session_findings(folder, plan, header.purpose, course)
        yield from told_findings(folder, plan, name, header, played)
        yield from key_findings(name, header, content)
    yield from plan.main.query.initial_findings(plan.study, initial)
    yield from query_count_findings(plan, done, content)
    yield from attempt_findings(plan, done, content)
    _begin_last(plan, courses, done)
    for planned in plan.stepped:
        courses[planned.purpose].miss(attempts_shown(planned, done), planned.mechanism.steps)
    for asked in between:
        yield score_findings(folder / METRICS, plan, asked, courses[plan.main.purpose], done)
    shown = {played.result for _, played in done if played.result is not None}
    for planned in plan.stepped:
        yield from planned.query.replay_findings(folder, plan, courses[planned.purpose], shown)


def _session_findings(
    folder: Path, plan: Plan, purpose: str, course: Course | None
) -> Iterator[Finding]:
    """What a session gave that is neither a model nor answers."""
    planned = next((one for one in plan.stepped if one.purpose == purpose), None)
    if course is not None and planned is not None:
        yield from planned.query.session_findings(folder, purpose, course)


def _is_earlier(plan: Plan, header: Header) -> bool:
    """Whether a session is of something that is asked before the main query has ended."""
    planned = plan.planned(header.purpose)
    return planned is None or not planned.query.is_asked_last


def _place(plan: Plan, header: Header) -> tuple[bool, bool, int]:
    """Where a session is played: the main query first, whatever its header says."""
    return not _is_earlier(plan, header), header.purpose != plan.main.purpose, header.number


def _begin_last(plan: Plan, courses: dict[str, Course], done: Sessions) -> None:
    """Begin what is asked last at the end of the main query, whose sessions were all played."""
    main = courses[plan.main.purpose]
    main.miss(attempts_shown(plan.main, done), plan.main.mechanism.steps)
    end = None if main.led is None else main.led.parameters
    is_model = end is not None and np.isfinite(end).all()
    for planned in plan.stepped:
        if planned.query.is_asked_last and planned.purpose not in courses:
            # Where the end could not be made again, what was sent first proves nothing.
            begin = planned.query.start(end) if is_model else None
            courses[planned.purpose] = Course(
                planned, begin, proven=main.is_proven, model=plan.dimension
            )


def _replay(path: Path, header: Header, plan: Plan, course: Course | None) -> Player:
    """What plays a transcript again."""
    numbers = _round_parameters(path, header, plan)
    if (player := other_player(path, header, numbers, course)) is not None:
        if not _is_earlier(plan, header):
            raise IntegrityError(
                f"expected {path} to be of sessions that began once the model was released, found "
                f"a collection of {header.purpose}, in which silos sum at their first weights"
            )
        return player
    planned = plan.planned(header.purpose)
    assert planned is not None, "its numbers are the plan's"  # noqa: S101
    lifted, liftable = planned.query.replayed_lift(numbers, plan)
    return Replay(header, numbers, course, lift=lifted, liftable=liftable)


def _why_nothing(
    folder: Path, paths: Sequence[Path], plan: Plan, headers: Mapping[Path, Header]
) -> str:
    """Why there is nothing to replay; "" if there is."""
    if not any(headers[path].purpose == plan.main.purpose for path in paths):
        return f"there is no transcript of {plan.main.purpose}, as for a baseline"
    # Some file must be large enough for one model, two bytes a number; none is built before.
    sizes = [path.stat().st_size for path in (*paths, folder / MODEL) if path.exists()]
    has_room = 2 * (plan.dimension or 0) <= max(sizes, default=0)
    return "" if has_room else "no file contains a model of the size that the plan states"


def _misnamed(plan: Plan, headers: Mapping[Path, Header]) -> Iterator[Finding]:
    """Sessions that the study does not ask for."""
    for path, header in headers.items():
        try:
            _round_parameters(path, header, plan)
        except IntegrityError as error:
            yield wrong(f"{FOLDER}/{path.name} fits", error)


def _round_parameters(path: Path, header: Header, plan: Plan) -> RoundParameters:
    """The numbers of a session's rounds, which are those of the plan."""
    if header.study != plan.study.id:
        raise IntegrityError(f"expected {path} to be of this study, found another's; remove it")
    if header.round_parameters is None:
        raise IntegrityError(f"expected {path} to state the numbers of its rounds, it does not")
    named = plan.study.parties.roster
    if named and header.roster.digest.hex() != named:
        raise IntegrityError(
            f"expected {path} to be of the roster {named}, which the study names, found another's: "
            "whose keys these are nothing says"
        )
    planned = plan.planned(header.purpose)
    if planned is None:
        raise IntegrityError(
            f"expected {path} to be a session that the study asks for, found “{header.purpose}”"
        )
    mine = round_parameters_of(planned)
    # Numbers that are calibrated end on other last digits elsewhere, so all floats may differ by a
    # millionth. What a forger gains: nothing of what silos sent, who clip, sample and draw noise by
    # their own plan's numbers and refuse an offer of others (`SessionOffer.check`). Of the floats
    # the replay computes with `grid_step` alone: it multiplies all sums of the session alike, as
    # another learning rate in its seventh digit would.
    if why := difference(header.round_parameters.to_dict(), mine.to_dict()):
        raise IntegrityError(f"expected {path} to keep to the plan: {why}")
    return header.round_parameters
