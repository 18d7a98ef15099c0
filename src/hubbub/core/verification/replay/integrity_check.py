"""Whether the files of a run are, byte for byte, what was written, and the metrics' epsilon is due.

Files are compared with the digests in the evidence, transcripts with their chains and with the
heads in the evidence, the evidence with its signature. Nothing is made again here, so it is quick;
what is damaged is named, with what to do, and is no reason to blame anybody. Of the metrics, which
are in no transcript, no row may tell less epsilon than was spent by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hubbub.core.disk import json_value
from hubbub.core.errors import EffortError, HubbubError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.verification.evidence.collecting import FILE, digests_of, summary_of
from hubbub.core.verification.evidence.evidence_file import MALFORMED, Plain, load, read_whole
from hubbub.core.verification.evidence.finding import RESTORE, Finding, judged, not_checked, wrong
from hubbub.core.verification.transcript.frame_records import FOLDER, files

METRICS = "metrics.jsonl"
_ROUNDING = 1e-9  # relative: the account is made again, perhaps on another machine
_CLAIM = (
    "metrics.jsonl tells no less epsilon than was spent by each step, and in the end no less than "
    "that of the attempts that the evidence counts"
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
            yield wrong(f"{file} is what was kept of its session", error)
    if content is not None:
        try:
            yield from _changed(folder, content, contents)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            yield wrong(f"{path} lists the run's files", f"{type(error).__name__}: {error}")


def _changed(folder: Path, content: Plain, summaries: Mapping[str, Plain]) -> Iterator[Finding]:
    """Files that are not those of the evidence."""
    listed, there = content["files"], digests_of(folder)
    for name in sorted({*listed, *there}):
        if listed.get(name) != there.get(name):
            yield wrong(f"{folder / name} is the file that {FILE} lists", _how(listed, there, name))
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
        return "the evidence does not know it; it was added later: remove it"
    return f"it was altered or cut; {RESTORE}"


def check_rows(path: Path, plan: Plan, content: Plain) -> Finding:
    """Whether every row's epsilon covers its step, and the last one's all attempts of the evidence.

    The metrics themselves were measured by the aggregator on public records, which are not here.
    """
    try:
        rows = [json_value(line) for line in read_whole(path).splitlines()]
        least = [plan.epsilon_after(max(1, int(row["step"]))) for row in rows]
        shown = [float(row["epsilon"]) for row in rows]
        least[-1] = plan.epsilon_after(int(content["epsilon"]["attempts"]))
    except EffortError:
        return not_checked(_CLAIM)
    except MALFORMED as error:
        return judged(_CLAIM, f"it cannot be read ({type(error).__name__}); {RESTORE}")
    short = [
        f"row {number} tells {epsilon:.6g}, {due:.6g} was spent"
        for number, (epsilon, due) in enumerate(zip(shown, least, strict=True), 1)
        if not epsilon >= due * (1 - _ROUNDING)
    ]
    return judged(_CLAIM, f"{short[0]}; {RESTORE}" if short else "")
