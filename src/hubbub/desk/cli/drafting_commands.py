"""`hubbub init`: from files of records to a first study.

It reads records, on this machine only, and prints what it finds to whoever has the files.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.number_format import few
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.core.tabular.target import KINDS, Outcome
from hubbub.desk.cli.drafted_validation import TOO_FEW, with_validation
from hubbub.desk.cli.terminal import add_command, emit, say, table, writing
from hubbub.desk.drafting.asked_query import AskedQuery
from hubbub.desk.drafting.column_meaning import Question
from hubbub.desk.drafting.draft_files import draft_text, write_tidy
from hubbub.desk.drafting.raw_table import Fault
from hubbub.desk.drafting.study_draft import EPSILON, Draft, draft, with_tidy
from hubbub.desk.drafting.survey import (
    Answers,
    Survey,
    likely_namesakes,
    open_questions,
    surveyed,
    with_time,
)
from hubbub.desk.drafting.table_check import all_faults, checked
from hubbub.learning.queries.training_query import too_wide

_TIDY = ("--tidy", "tidy")
_ANSWERS = ("--target", "--patient", "--time", "--event", "--join", "--codes", "--amounts")
MISFITS = "in a run such cells count as missing, or their rows are left out"
_ALIKE = 3  # faults of one kind in a file that are shown
_VALUES = re.compile(r"'[^']*'|\d[\d.,e+-]*")  # in which faults of one kind differ


def add_commands(commands: Any) -> None:
    """Register the commands."""
    words = "draft a study from one silo's files, or each silo's; nothing is sent"
    init = add_command(commands, "init", words, _init)
    init.add_argument("files", type=Path, nargs="*", help="a CSV or Parquet file for each silo")
    words = "a file with one SELECT, in place of files; asked of the databases in sources.toml"
    init.add_argument("--query", type=Path, metavar="FILE", help=words)
    words = "of each table of the query, the column that says whose a row is"
    init.add_argument("--person", metavar="TABLE=COLUMN", action="append", default=[], help=words)
    words = "the folder of sources.toml; default here, or hubbub-home"
    init.add_argument("--data", type=Path, default=Path(), metavar="DIR", help=words)
    init.add_argument("--target", metavar="COLUMN", help="what to learn; default: it is guessed")
    words = "whose a row is: all rows of one patient are one unit"
    whose = init.add_mutually_exclusive_group()
    whose.add_argument("--patient", metavar="COLUMN", help=words)
    words = "every row is another person's, though values that look like persons come back"
    whose.add_argument("--records-are-units", action="store_true", help=words)
    words = "one row for each of its values: of every column the first value; needs --tidy"
    init.add_argument("--join", metavar="COLUMN", help=words)
    words = "columns whose whole numbers are codes, so categories; with commas"
    init.add_argument("--codes", metavar="COLUMNS", help=words)
    words = "columns whose few whole numbers are counts, scores or grades; with commas"
    init.add_argument("--amounts", metavar="COLUMNS", help=words)
    kinds = ("class", *KINDS)
    init.add_argument("--kind", choices=kinds, help="of what to learn; default: it is guessed")
    init.add_argument(
        "--event", metavar="COLUMN", help="says whether the time in --time ended with the event"
    )
    words = "the time to learn, until the event; default with --event: it is guessed"
    init.add_argument("--time", metavar="COLUMN", help=words)
    words = "share of each silo's records that scores the model instead of training it"
    init.add_argument("--test-share", type=float, metavar="SHARE", help=words)
    init.add_argument(
        "--out", type=Path, default=Path("study.toml"), help="the study; default study.toml"
    )
    init.add_argument(
        "--tidy", type=Path, metavar="DIR", help="also write copies that a run can read, there"
    )
    init.add_argument("--replace", action="store_true", help="write over what is there")


def _init(options: argparse.Namespace, read: Survey | None = None) -> int:
    """Draft, of files that were read already before somebody answered."""
    if options.out.exists() and not options.replace:
        raise UserError(
            f"expected no file {options.out} yet, found one; name another with --out, or add "
            "--replace"
        )
    share = 0.0 if options.test_share is None else _share(options.test_share)
    asked = _asked(options)
    if read is None:
        read = surveyed(options.files) if asked is None else asked.surveyed(options.data)
    survey = read if options.join is None else read.joined(_joined_by(options))
    given = with_time(_answers(options), survey)
    if questions := open_questions(survey, given):
        if not options.json and sys.stdin.isatty():
            with suppress(EOFError):  # who ends the input is told what to type
                answered = _answered(options, questions)
                return _init(answered, None if asked else read)  # a query may change with them
        return _ask(options, survey, questions)
    drafted = with_validation(replace(draft(survey, given), test_share=share, asked=asked))
    left_out: dict[str, int] = {}
    if options.tidy is not None:
        with writing(options.tidy, "folder"):
            left_out = write_tidy(drafted, options.tidy, replace=options.replace)
        drafted = with_tidy(drafted, options.tidy.as_posix())
    text = draft_text(drafted)
    study = Study.parse(text)
    plan(study)  # a draft is something that can be planned
    with writing(options.out):
        write_text(options.out, text)
    faults = _faults(drafted, study, tidied=options.tidy is not None)
    result = _described(drafted, faults, left_out) | {"out": str(options.out)}
    result["next"] = _next(options, drafted, faults)
    result["too_wide"] = too_wide(study)
    if options.json:
        emit(result)
    else:
        _show(options, drafted, faults, left_out, result["too_wide"])
    return 0 if result["ready"] or options.query else 1


def _joined_by(options: argparse.Namespace) -> str:
    """The column by which rows are joined, in copies."""
    if options.tidy is None:
        raise UserError(
            f"expected --tidy with --join {options.join}, since only copies have joined rows, got "
            "none; add --tidy tidy"
        )
    return str(options.join)


def _answered(options: argparse.Namespace, questions: list[Question]) -> argparse.Namespace:
    """The options with what somebody at a terminal answers."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in _ANSWERS:
        parser.add_argument(name)
    parser.add_argument("--tidy", type=Path)
    parser.add_argument("--records-are-units", action="store_true", default=None)
    before = {name: getattr(options, name) for name in ("codes", "amounts")}
    for one in questions:
        answers = vars(parser.parse_known_args(_chosen(one))[0])
        given = {name: value for name, value in answers.items() if value is not None}
        given |= {"patient": None} if "join" in given else {}
        for name, old in before.items():
            if old and name in given:
                given[name] = f"{old},{given[name]}"
        vars(options).update(given)
    return options


def _chosen(question: Question) -> tuple[str, ...]:
    """The options of the answer that somebody types: its number, or options of their own."""
    say(question.asked)
    for number, choice in enumerate(question.choices, 1):
        say(f"  {number}  {choice.means}  ({shlex.join(choice.options)})")
    while True:
        typed = input("number, or options; Enter for 1: ").strip() or "1"
        if typed.isdigit() and 1 <= int(typed) <= len(question.choices):
            return question.choices[int(typed) - 1].options
        if typed.startswith("--"):
            return tuple(shlex.split(typed))


def _asked(options: argparse.Namespace) -> AskedQuery | None:
    """The query that is asked in place of files."""
    if bool(options.files) == bool(options.query) or (options.query and options.tidy):
        raise UserError(
            "expected either files or --query (which makes no --tidy copies), got both or "
            "neither; name a file for each silo"
        )
    if not options.query:
        return None
    return AskedQuery.of(options.query, options.person, options.patient)


def _faults(made: Draft, study: Study, *, tidied: bool) -> list[Fault]:
    """What a run would refuse of the files that the study names, and what is odd."""
    if tidied:  # where patients are numbered anew, so that keys that look alike are seen here alone
        alike = [
            fault
            for table in made.tables
            if made.patient and made.patient in table.header
            for fault in likely_namesakes(table, made.patient)
        ]
        left_out = [
            replace(fault, remedy="left out of the copy", refused=False)
            for table in made.tables
            for fault in table.faults
            if fault.row is not None
        ]
        copies = checked(study, made.parties[: len(made.tables)], Path())
        return [*alike, *left_out, *copies]
    return [*made.faults, *all_faults(made.tables, study.data, made.tables)]


def _is_ready(made: Draft, faults: list[Fault]) -> bool:
    """Whether a run can read the files as they are."""
    return bool(made.files) and _is_read(faults)


def _is_read(faults: list[Fault]) -> bool:
    """Whether nothing in the files is refused."""
    return not any(fault.refused for fault in faults)


def _answers(options: argparse.Namespace) -> Answers:
    """What was said of the files."""
    if options.time is not None and options.event is None:
        raise UserError(
            f"expected --event with --time {options.time}, got none; name the column that says "
            "whether the time ended with the event"
        )
    if options.time is not None and options.target not in (None, options.time):
        raise UserError(
            f"expected --time to be what is learned, got --target {options.target} too; leave one "
            "of them out"
        )
    return Answers(
        target=options.time or options.target,
        kind=options.kind,
        event=options.event,
        patient=options.patient,
        records_are_units=options.records_are_units,
        codes=_names(options.codes),
        amounts=_names(options.amounts),
    )


def _names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(filter(None, (name.strip() for name in (text or "").split(","))))


def _share(share: float) -> float:
    """The share of records that is held back."""
    if not 0.01 <= share <= 0.9:
        raise UserError(f"expected --test-share from 0.01 to 0.9, got {share:g}; choose .2")
    return share


def _ask(options: argparse.Namespace, survey: Survey, questions: list[Question]) -> int:
    """What has to be known first: nothing is written, and the exit code says so."""
    likeliest = [word for question in questions for word in question.choices[0].options]
    unread = options.tidy is None and any(form_fault.refused for form_fault in _form_faults(survey))
    tidied = "--tidy" in likeliest
    following = _again(options, *likeliest, *(_TIDY if unread and not tidied else ()))
    asked = [question.to_dict() for question in questions]
    if options.json:
        emit({"ready": False, "out": None, "questions": asked, "next": following})
        return 1
    say(f"{', '.join(one.origin for one in survey.tables)}: read; what follows is not in them")
    for number, one in enumerate(questions, 1):
        say(f"{number}. {one.asked}")
        width = max(len(shlex.join(choice.options)) for choice in one.choices)
        for choice in one.choices:
            say(f"     {shlex.join(choice.options):{width}}  {choice.means}")
    if unread and not tidied:
        say("a run cannot read these files as they are: --tidy tidy also writes copies that it can")
    say("nothing was written: answer with these options; with the first answers it is")
    say(f"    {following}")
    return 1


def _form_faults(survey: Survey) -> list[Fault]:
    """What is wrong with the form of files, whatever is learned."""
    return [*survey.faults, *(fault for table in survey.tables for fault in table.faults)]


def _again(options: argparse.Namespace, *more: str) -> str:
    """The same command with more options."""
    words = ["hubbub", "init", *map(str, options.files)]
    if options.query:
        words += ["--query", str(options.query), "--data", str(options.data)]
        words += [word for one in options.person for word in ("--person", one)]
    for name in ("target", "patient", "kind", "time", "event", "test_share", "join"):
        value = getattr(options, name)
        option = f"--{name.replace('_', '-')}"
        joins = name == "patient" and "--join" in more
        if value is not None and option not in more and not joins:
            words += [option, str(value)]
    for name in ("codes", "amounts"):
        listed = list(_names(getattr(options, name)))
        if f"--{name}" in more:
            place = more.index(f"--{name}") + 1
            more = (*more[:place], ",".join([*listed, more[place]]), *more[place + 1 :])
        elif listed:
            words += [f"--{name}", ",".join(listed)]
    words += ["--records-are-units"] if options.records_are_units else []
    words += ["--replace"] if options.replace and "--replace" not in more else []
    words += ["--out", str(options.out)] if options.out != Path("study.toml") else []
    if options.tidy is not None and "--tidy" not in more:
        words += ["--tidy", str(options.tidy)]
    return shlex.join([*words, *more])


def _next(options: argparse.Namespace, made: Draft, faults: list[Fault]) -> str:
    """The command that comes next."""
    if options.tidy is not None and not _is_ready(made, faults):
        return f"hubbub check {shlex.quote(str(options.out))}"
    if not _is_ready(made, faults) and options.query:
        party = next(one for one in made.parties if any(one in fault.file for fault in faults))
        words = ["hubbub", "check", str(options.out), "--silo", party, "--data", str(options.data)]
        return shlex.join([*words, "--mapping", str(options.data / "mapping.toml")])
    if not _is_ready(made, faults):
        guessed = ["--target", made.target.name] if made.target.guessed else []
        return _again(options, *guessed, *_TIDY, "--replace")
    if len(made.tables) == 1:
        return f"hubbub plan {shlex.quote(str(options.out))}"
    return f"hubbub run {shlex.quote(str(options.out))}"


def _described(made: Draft, faults: list[Fault], left_out: dict[str, int]) -> dict[str, Any]:
    """The draft for machines."""
    return {
        "parties": made.parties,
        "target": made.target.name,
        "guessed": made.target.guessed,
        "other_targets": made.target.others,
        "questions": [],
        "positive": made.target.positive,
        "negative": made.target.negative,
        "classes": made.target.classes,
        "kind": made.target.outcome.kind if made.target.outcome else "class",
        "columns": [covariate.name for covariate in made.used],
        "patient": made.patient,
        "left_out": {column.name: column.note for column in made.columns if not column.column},
        "validation": made.validation_epsilon,
        "private": made.private,
        "rows_left_out": left_out,
        "faults": [fault.to_dict() for fault in faults],
        "ready": _is_ready(made, faults),
    }


def _show(
    options: argparse.Namespace,
    made: Draft,
    faults: list[Fault],
    left_out: dict[str, int],
    wide: str,
) -> None:
    """The draft for people."""
    rows = [(column.name, _becomes(column), column.note) for column in made.columns]
    title = f"{options.out}: {len(made.parties)} silos, {', '.join(made.parties)}"
    table(title, ("column", "becomes", "note"), [_learned(made), *rows], texts=3)
    for party, of_party in zip(left_out, made.tables, strict=False):
        kept = max(of_party.numbers, default=0) - left_out[party]
        lost = "; rows that are none, or have no target, are left out" if left_out[party] else ""
        say(f"copied to {options.tidy / f'{party}.csv'}: {kept} records{lost}")
    list_faults(faults)
    if wide:
        say(wide)
    say(_costs(made))
    private = "; ".join(made.private)
    say(f"from records, so agree on it or replace it before others see it: {private}")
    say("nothing was sent; the list above is for your own eyes")
    if not made.files and (options.tidy is not None or _is_read(faults)):
        say("the files' names fit no pattern like silo-{name}.csv, which a study needs")
    if any("factor" in fault.remedy for fault in faults):
        say("before anybody trains, settle with the sites whose units differ: see the notes above")
    if options.tidy is not None and not _is_ready(made, faults):
        say("a run still refuses what is wrong above: correct it, and see again with")
    elif not _is_ready(made, faults) and options.query:
        say(f"{MISFITS}: mend them in the database, or let each site map its own, beginning with")
    elif not _is_ready(made, faults):
        say("a run cannot read these files yet: correct them, or have tidy copies made with")
    elif len(made.tables) == 1:
        say("put the other silos' names into [parties] of the study; then see what it means with")
    else:
        say(f"look through {options.out}; then see what it means with hubbub plan, and train with")
    say(f"    {_next(options, made, faults)}")


def _costs(made: Draft) -> str:
    """What each part of the draft takes of epsilon."""
    if not made.validation_epsilon:
        return f"epsilon {EPSILON:g}: all of it trains the model; {TOO_FEW}"
    part = made.validation_epsilon
    return (
        f"epsilon {EPSILON:g}: {EPSILON - part:g} trains the model, {part:g} tells how good it is "
        "([validation]); without that table the training has all of it, and only public records "
        "(data.test) tell"
    )


def _learned(made: Draft) -> tuple[str, str, str]:
    """The target's row of the table."""
    target = made.target
    if target.outcome is not None:
        meaning = f"the target: {_outcome(target.outcome)}"
    elif target.classes:
        meaning = f"the target: {', '.join(target.classes)}"
    else:
        meaning = (
            f"the target: 1 is {', '.join(target.positive)}; 0 is {', '.join(target.negative)}"
        )
    others = f" (perhaps {', '.join(target.others)})" if target.others else ""
    guess = (f"guessed: --target names another{others}",) if target.guessed else ()
    return target.name, meaning, "; ".join((*guess, *target.notes, *target.seen))


def _outcome(outcome: Outcome) -> str:
    """What is learned, in a few words."""
    if outcome.grid:
        return f"a time to the event of {outcome.event}, seen up to {outcome.grid[-1]:g}"
    return f"{outcome.kind} from {outcome.low:g} to {outcome.high:g}"


def _becomes(one: Any) -> str:
    """What a study makes of a column, in a few words."""
    if one.column is None:
        return "left out"
    if one.column.categories:
        return f"one of {', '.join(one.column.categories)}"
    low, high = one.column.bounds
    steps = f" in steps of {one.column.step:g}" if one.column.step else ""
    return f"a number from {low:g} to {high:g}{steps}"


def list_faults(faults: list[Fault]) -> None:
    """All faults, those first that a run refuses; of one kind in a file only some."""
    kinds: dict[tuple[bool, str, str], list[Fault]] = {}
    for fault in sorted(faults, key=lambda one: not one.refused):
        kind = _VALUES.sub("", fault.what)
        kinds.setdefault((fault.refused, fault.file, kind), []).append(fault)
    for (is_refused, file, _), alike in kinds.items():
        word = "wrong" if is_refused else "note"
        shown = len(alike) if len(alike) <= _ALIKE else _ALIKE - 1
        for fault in alike[:shown]:
            say(f"{word}: {fault}")
        if rest := alike[shown:]:
            names = few([repr(fault.column) for fault in rest], _ALIKE)
            say(f"{word}: {file}: the same in columns {names}; --json lists all")
