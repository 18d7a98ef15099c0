"""`hubbub verify DIR`: everything about a run that can be done again is done again.

First the bytes (`integrity_check.py`): what was altered is named, and nothing is built on it. Then
the study and its plan; then every session of the transcript is played (`replay.py`), which gives
the model bit for bit; then the attempts are counted, and at last come the claims of the evidence
itself. This file knows where a run keeps what; it holds no data of any silo and runs no code that a
study names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.assurance.evidence import (
    AUDIT,
    FILE,
    MALFORMED,
    MODEL,
    STANDARDISED,
    Finding,
    Plain,
    check_content,
    difference,
    judged,
    load,
    not_checked,
    not_verifiable,
    read_plain,
    read_whole,
    rederived,
    remade,
    within_seconds,
    wrong,
)
from hubbub.assurance.transcript import FOLDER, Header, files, plain_roster, read_header
from hubbub.assurance.verification.integrity_check import (
    METRICS,
    RESTORE,
    check_rows,
    integrity_findings,
)
from hubbub.assurance.verification.model_course import (
    course_of,
    initial_of,
    last_model,
    lift_for,
)
from hubbub.assurance.verification.replay import Played, Replay, first_round
from hubbub.assurance.verification.statistics_check import statistic_findings
from hubbub.errors import EffortError, HubbubError, IntegrityError, UserError
from hubbub.planning import STANDARDISATION, STATISTICS, TRAINING, Plan
from hubbub.protocol import EARLIER, RoundParameters
from hubbub.session import round_parameters_of, sent_down
from hubbub.study import Study, standardisation_from

_BEYOND = (
    "plan.json follows from study.toml",
    "sums, attempts and the model are what the transcripts make of them",
)
_NO_EVIDENCE = (
    f"there is no {FILE}, so nothing shows that a transcript was not cut between two messages, "
    "nor what the ledgers hold; a finished run has one"
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
    if not (folder / "study.toml").exists() and not (folder / FILE).exists():
        raise UserError(
            f"expected the folder of a run at {folder}, found no study.toml in it; name the folder "
            "that --out named"
        )
    found = list(integrity_findings(folder))
    if found:
        return found
    content = load(folder / FILE) if (folder / FILE).exists() else None
    found = [_intact(folder, content)]
    try:
        study = Study.parse(read_whole(folder / "study.toml").decode())
        stated = read_plain(folder / "plan.json")
        made, beyond = _planned(study, stated)
    except MALFORMED as error:
        return [*found, wrong("study.toml and plan.json can be read", f"{error}; {RESTORE}")]
    claimed = {} if content is None else content.get("study")
    if content is not None and (type(claimed) is not dict or claimed.get("id") != study.id.hex()):
        why = f"it is about another study; {RESTORE}"
        return [*found, wrong(f"{FILE} is about the study in study.toml", why)]
    if content is not None and (folder / AUDIT).exists():
        found.append(_audit_kept(folder / AUDIT, content))
    claims = [not_verifiable(_NO_EVIDENCE)] if content is None else check_content(content)
    if beyond:
        return [*found, *map(not_checked, _BEYOND), *claims]
    if made is None:
        return [*found, *_without_plan(stated, content), *claims]
    found.append(_alike("plan.json follows from study.toml", stated, made.to_dict()))
    if found[-1].holds:
        sound = content if all(one.holds for one in [*found, *claims]) else None
        found += _played(folder, made, sound, look)
        if sound is not None:
            found.append(check_rows(folder / METRICS, made, sound))
    return found + claims


def _planned(study: Study, stated: Plain) -> tuple[Plan | None, bool]:
    """The plan that is made again, if it can be; and whether it would take too long."""
    try:
        return remade(study, stated["dimension"], stated.get("degree")), False
    except EffortError:
        return None, True


def _without_plan(stated: Plain, content: Plain | None) -> Iterator[Finding]:
    """What can be said where a plan cannot be made again, and nothing played without one."""
    if content is None:
        yield not_verifiable(
            "the plan: how many features a record has, only its own code or data know"
        )
    else:
        yield _alike(f"plan.json is the plan of {FILE}", stated, content.get("plan"))
    yield not_verifiable("that sums, attempts and the model are what the transcripts make of them")


def _audit_kept(path: Path, content: Plain) -> Finding:
    """Whether the evidence says of an audit what its file does."""
    claim = f"{path.name} is what {FILE} says that an audit has found"
    try:
        return _alike(claim, read_plain(path), content.get("audit"))
    except MALFORMED as error:
        return wrong(claim, f"it cannot be read ({type(error).__name__})")


def _alike(claim: str, stated: Plain, made: Plain | None) -> Finding:
    """Whether plain values that were written down are those that follow."""
    try:
        why = difference(stated, made)
    except (OverflowError, RecursionError):
        why = "it has something past all measure"
    return judged(claim, f"{why}; {RESTORE}" if why else "")


def steps_of(folder: Path) -> int:
    """How many attempts there may be to play; 0 if the study cannot be read."""
    try:
        return Study.parse(read_whole(folder / "study.toml").decode()).training.steps
    except MALFORMED:
        return 0


def _intact(folder: Path, content: Plain | None) -> Finding:
    count = len(files(folder))
    if content is None:
        return rederived(f"{count} transcripts, each a whole chain")
    return rederived(
        f"{len(content['files'])} files and {count} transcripts are those that {FILE} lists"
    )


def _played(
    folder: Path, plan: Plan, content: Plain | None, look: Callable[[], None]
) -> Iterator[Finding]:
    """The sessions, the attempts and the model."""
    headers = {path: read_header(path) for path in files(folder)}
    paths = sorted(headers, key=lambda path: (headers[path].number, path.name))
    training = [path for path in paths if headers[path].purpose == TRAINING]
    if not training:
        yield not_verifiable(
            "there is no transcript of training, as of a baseline: nothing to play"
        )
        return
    if not _has_room(folder, paths, plan):
        yield not_verifiable(
            "no file holds a model of the size that the plan states: nothing to play"
        )
        return
    initial = initial_of(plan)
    starts = [first for path in training if (first := first_round(path)) is not None]
    course = course_of(plan, initial, starts)
    done: list[tuple[Header, Played]] = []
    asked: Counter[str] = Counter()
    sums: dict[int, NDArray[np.float64]] = {}  # of statistics beside a training
    for path in paths:
        header, name = headers[path], f"{FOLDER}/{path.name}"
        try:
            terms = _terms(path, header, plan)
            is_training, (lifted, liftable) = path in training, lift_for(terms, plan)
            followed = course if is_training else None
            replay = Replay(header, terms, followed, lift=lifted, liftable=liftable)
            played = replay.play(path, look)
        except HubbubError as error:
            yield wrong(f"{name} fits", error)
            return
        done += [(header, played)] if is_training else []
        asked[header.purpose] += played.attempts
        if header.purpose == STATISTICS:
            sums |= played.sums
        yield from _shown_by(name, header, played)
        if played.withheld and plan.study.transcript == "full":
            why = 'the study says transcript = "full", which is what it was approved with'
            yield wrong(f"{name} has all vectors", f"{played.withheld} rounds lack some; {why}")
        yield from _made_of_sums(folder, plan.study, header, played)
        yield from _other_keys(name, header, content)
    if initial is None:
        made_by = f"{plan.study.model.kind} makes; it is not run here"
        yield not_verifiable(f"the first model, which {made_by}")
    else:
        yield rederived("the first model follows from the study id")
    yield from _asked(plan, asked, content)
    yield from _attempts(plan.study, done, content)
    if (folder / MODEL).exists():
        interrupted = len(done) > 1 and not done[-1][1].attempts
        before = course.before if interrupted else None
        yield last_model(folder / MODEL, plan, course.parameters, before)
    yield from statistic_findings(folder, plan, sums, course.parameters)


def _has_room(folder: Path, paths: Sequence[Path], plan: Plan) -> bool:
    """Whether some file is large enough for one model, two bytes a number; none is built before."""
    sizes = [path.stat().st_size for path in (*paths, folder / MODEL) if path.exists()]
    return 2 * (plan.dimension or 0) <= max(sizes, default=0)


def _terms(path: Path, header: Header, plan: Plan) -> RoundParameters:
    """The numbers of a session's rounds, which are those of the plan."""
    if header.study != plan.study.id:
        raise IntegrityError(f"expected {path} to be of this study, found another's; remove it")
    if header.terms is None:
        raise IntegrityError(f"expected {path} to state the numbers of its rounds, it does not")
    named = plan.study.parties.roster
    if named and header.roster.digest.hex() != named:
        raise IntegrityError(
            f"expected {path} to be of the roster {named}, which the study names, found another's: "
            "whose keys these are nothing says"
        )
    size = plan.dimension or header.terms.parameters
    query = plan.query(header.purpose)
    if query is None and header.purpose != TRAINING:
        raise IntegrityError(
            f"expected {path} to be a session that the study asks for, found “{header.purpose}”"
        )
    down = sent_down(plan, header.purpose) or size
    planned = round_parameters_of(plan, size, parameters=down)
    if query is not None:
        planned = round_parameters_of(query.plan, query.query.numbers, parameters=down)
    if why := difference(asdict(header.terms), asdict(planned)):
        raise IntegrityError(f"expected {path} to keep to the plan: {why}")
    return header.terms


def _shown_by(name: str, header: Header, played: Played) -> Iterator[Finding]:
    """What playing a session showed."""
    purpose = "" if header.purpose == TRAINING else f" ({header.purpose})"
    yield rederived(
        f"{name}{purpose}: {played.frames} messages of {len(header.roster.parties)} parties, their "
        f"signatures and order; {played.attempts} attempts, one answer of each party to each, and "
        "to one MODEL"
    )
    if played.unseen:
        yield not_verifiable(
            f"the sums of {played.unseen} rounds in {name}, and the steps after them: masked "
            'vectors were not kept (transcript = "hashes"), or sums were projected layer by layer '
            "for a model of the study's own"
        )
    elif header.purpose == TRAINING:
        yield rederived(f"{name}: every sum, and every step of the model, bit for bit")
    if header.roster.nodes and played.version == EARLIER:
        yield not_verifiable(
            f"that no compute node told two totals of one attempt in {name}: it is of an earlier "
            "version, in which nodes did not promise each other the silos of a sum"
        )


def _made_of_sums(folder: Path, study: Study, header: Header, played: Played) -> Iterator[Finding]:
    """What a session besides the training gave."""
    path, asked = folder / STANDARDISED, study.data.standardise
    if header.purpose == STANDARDISATION and asked is not None and played.sums and path.exists():
        made = standardisation_from(played.sums[1], asked.bound).to_json()
        same = read_whole(path) == made.encode()
        yield judged(f"{path} follows from the sums", "" if same else f"it differs; {RESTORE}")
    elif header.purpose not in (TRAINING, STATISTICS):
        yield not_verifiable(f"that what the session for {header.purpose} gave follows from it")


def _other_keys(name: str, header: Header, content: Plain | None) -> Iterator[Finding]:
    """A session is the parties' own if it has the keys with which they sign the evidence."""
    if content is not None and plain_roster(header.roster) != content["roster"]:
        yield not_verifiable(
            f"that the keys in {name} are the parties': they are not those of {FILE}, as after a "
            "run in one process was resumed"
        )


def _asked(plan: Plan, asked: Counter[str], content: Plain | None) -> Iterator[Finding]:
    """What was asked of the silos besides the training, over all sessions (P16)."""
    counted = plan.study.training.steps if content is None else content["epsilon"]["attempts"]
    for planned in plan.queries:
        purpose, most = planned.query.purpose, planned.query.made_by(int(counted))
        why = "the epsilon that is claimed does not hold" if asked[purpose] > most else ""
        yield judged(f"{asked[purpose]} sums for {purpose} were made, of {most} that are due", why)


def _attempts(
    study: Study, done: list[tuple[Header, Played]], content: Plain | None
) -> Iterator[Finding]:
    """Attempts that somebody answered, against what may be made and what was charged."""
    made, steps = sum(played.attempts for _, played in done), study.training.steps
    why = "" if made <= steps else "the epsilon that is claimed does not hold"
    yield judged(f"{made} attempts were made, of {steps} that the study allows", why)
    if content is None:
        return
    counted = content["epsilon"]["attempts"]
    why = "" if made <= counted else f"the evidence counts {counted}"
    yield judged("no attempt is missing from the epsilon of the evidence", why)
    answers: Counter[str] = Counter()
    for header, played in done:
        answers.update({header.roster.name(silo): n for silo, n in played.answers.items()})
    charged = {part["silo"]: part["attempts"] for part in content["silos"]}
    less = [name for name, number in charged.items() if answers[name] > number]
    why = f"{', '.join(less)} answered more attempts than were charged" if less else ""
    yield judged("every silo has charged what it answered", why)
