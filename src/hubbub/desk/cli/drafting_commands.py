"""`hubbub init`, from files of records to a first study, and `hubbub check`, from it to all faults.

They read records, on this machine only, and print what they find to whoever has the files.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.errors import UserError
from hubbub.core.number_format import few, several, size
from hubbub.core.planning.study_plan import plan
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.core.tabular.target import KINDS
from hubbub.desk.cli.terminal import (
    STUDY,
    add_command,
    answer,
    argument,
    emit,
    say,
    table,
    tell,
    writing,
)
from hubbub.desk.drafting.asked_query import AskedQuery
from hubbub.desk.drafting.draft_files import draft_text, mapping_draft, write_tidy
from hubbub.desk.drafting.raw_table import Fault
from hubbub.desk.drafting.study_draft import EPSILON, Draft, draft
from hubbub.desk.drafting.survey import (
    Answers,
    Question,
    Survey,
    likely_namesakes,
    open_questions,
    surveyed,
)
from hubbub.desk.drafting.table_check import all_faults, checked, read_site
from hubbub.learning.queries.training_query import about_own_code, too_wide

_TIDY = ("--tidy", "tidy")
_MISFITS = "in a run such cells count as missing, or their rows are left out"
_LARGE = 5_000_000  # bytes of files
_ALIKE = 3  # faults of one kind in a file that are shown
_TOO_FEW = (
    "no [validation] was drafted: with so few records at this epsilon, the noise would hide how "
    "good the model is; add silos, raise epsilon, or use public test records (data.test)"
)
_VALUES = re.compile(r"'[^']*'|\d[\d.,e+-]*")  # in which faults of one kind differ


def add_commands(commands: Any) -> None:
    """Register the commands."""
    init = add_command(
        commands,
        "init",
        "draft a study from one silo's files, or each silo's; nothing is sent",
        _init,
        argument("files", "one CSV or Parquet file for each silo", Path, nargs="*"),
        argument(
            "--query FILE",
            "a file with one SELECT, instead of files; it is run on the databases in sources.toml",
            Path,
        ),
        argument(
            "--person TABLE=COLUMN",
            "for each table of the query, the column with the person's key",
            action="append",
            default=[],
        ),
        argument(
            "--data DIR",
            "the folder of sources.toml; default here, or hubbub-home",
            Path,
            default=Path(),
        ),
        argument("--target COLUMN", "the column to predict; default: it is guessed"),
        (  # at most one of these
            argument(
                "--patient COLUMN",
                "the column with the person's key: all rows of one patient are protected together",
            ),
            argument(
                "--records-are-units",
                "every row is a different person, although some values look like repeated persons",
                bool,
            ),
        ),
        argument(
            "--join COLUMN",
            "one row for each value of this column, with the first value of every other "
            "column; needs --tidy",
        ),
        argument(
            "--codes COLUMNS",
            "columns whose whole numbers are codes, so categories; separated by commas",
        ),
        argument(
            "--amounts COLUMNS",
            "columns whose few whole numbers are counts, scores or grades; separated by commas",
        ),
        argument("--kind", "kind of target; default: it is guessed", choices=("class", *KINDS)),
        argument(
            "--event COLUMN", "the column that says whether the time in --time ended with the event"
        ),
        argument(
            "--time COLUMN",
            "the column with the time until the event; default with --event: it is guessed",
        ),
        argument(
            "--test-share SHARE",
            "share of each silo's records that scores the model instead of training it",
            float,
        ),
        argument(
            "--out", "file for the study; default study.toml", Path, default=Path("study.toml")
        ),
        argument(
            "--tidy DIR",
            "also write corrected copies, which a run can read, into this folder",
            Path,
        ),
        argument("--replace", "overwrite existing files", bool),
    )
    init.set_defaults(parser=init)  # which reads what is typed in answer to a question, too
    add_command(
        commands,
        "check",
        "list everything that is wrong with a study's files",
        _check,
        STUDY,
        argument("--silo NAME", "only this silo's file"),
        argument("--data DIR", "folder of the files; default here", Path, default=Path()),
        argument("--mapping FILE", "draft this silo's mapping file, for you to review", Path),
    )


def _init(options: argparse.Namespace, read: Survey | None = None) -> int:
    """Draft, of files that were read already before somebody answered."""
    _refuse(options)
    asked = None
    if options.query:
        asked = AskedQuery.of(options.query, options.person, options.patient)
    if read is None:
        _tell_if_large(options.files)
        read = surveyed(options.files) if asked is None else asked.surveyed(options.data)
    survey = read if options.join is None else read.joined(options.join)
    given = _answers(options).with_time(survey)
    if questions := open_questions(survey, given):
        if not options.json and sys.stdin.isatty():
            with suppress(EOFError):  # who ends the input is told what to type
                for question in questions:
                    options = _answered(options, question)
                return _init(options, None if asked else read)  # a query may change with them
        return _ask(options, survey, questions)
    share = options.test_share or 0.0
    drafted = _with_validation(replace(draft(survey, given), test_share=share, asked=asked))
    return _write(options, drafted)


def _tell_if_large(files: Sequence[Path]) -> None:
    """A word before some files are read that keep people waiting."""
    total = sum(path.stat().st_size for path in files if path.is_file())
    if total >= _LARGE:
        tell(f"reading {size(total)} of records: every cell is looked at, which may take minutes")


def _with_validation(drafted: Draft) -> Draft:
    """The draft with the least part of epsilon that tells how good the model is; none if none does.

    With a test share it is validated whatever that tells.
    """
    tried = drafted
    for share in drafted.validation_shares:
        tried = replace(drafted, validation_epsilon=share * EPSILON)
        study = Study.parse(draft_text(tried))
        (ask,) = (ask for ask in study.asks if "validation" in ask.tables)
        # With the number of bins that tells most.
        bins = ask.usual(study).get("validation", {}).get("bins", 0)
        tried = replace(tried, validation_bins=bins)
        if ask.is_telling(Study.parse(draft_text(tried))):
            return tried
    return tried if drafted.test_share else drafted


def _refuse(options: argparse.Namespace) -> None:
    if options.out.exists() and not options.replace:
        raise UserError(
            f"expected no file {options.out}, found one; name another with --out, or add --replace"
        )
    share = options.test_share
    if share is not None and not 0.01 <= share <= 0.9:
        raise UserError(f"expected --test-share from 0.01 to 0.9, got {share:g}; choose .2")
    if bool(options.files) == bool(options.query) or (options.query and options.tidy):
        raise UserError(
            "expected either files or --query (without --tidy), got both or neither; "
            "name one file for each silo"
        )
    if options.join is not None and options.tidy is None:
        raise UserError(
            f"expected --tidy with --join {options.join}, because only copies contain the "
            "joined rows, got none; add --tidy tidy"
        )


def _write(options: argparse.Namespace, drafted: Draft) -> int:
    """Write the study and the copies, and say what is in them and what comes next."""
    left_out: dict[str, int] = {}
    if options.tidy is not None:
        with writing(options.tidy, "folder"):
            left_out = write_tidy(drafted, options.tidy, replace=options.replace)
        folder = options.tidy.as_posix().rstrip("/")
        drafted = replace(drafted, files=f"{folder}/{{name}}.csv")
    text = draft_text(drafted)
    study = Study.parse(text)
    plan(study)  # a draft is something that can be planned
    with writing(options.out):
        write_text(options.out, text)
    faults = _faults(drafted, study, tidied=options.tidy is not None)
    is_ready = bool(drafted.files) and not any(fault.refused for fault in faults)
    words, command = _next(options, drafted, faults, is_ready=is_ready)
    following = shlex.join(["hubbub", *command])
    if options.json:
        outcome = {"ready": is_ready, "out": str(options.out), "next": following}
        emit(_described(drafted, left_out, faults) | outcome | {"too_wide": too_wide(study)})
    else:
        _show(options, drafted, left_out)
        list_faults(faults)
        for line in (*_last_words(options, drafted, study, faults), words, f"    {following}"):
            say(line)
    return 0 if is_ready or options.query else 1


def _answers(options: argparse.Namespace) -> Answers:
    if options.time is not None and options.event is None:
        raise UserError(
            f"expected --event with --time {options.time}, got none; name the column that "
            "says whether the time ended with the event"
        )
    if options.time is not None and options.target not in (None, options.time):
        raise UserError(
            f"expected --time as what the model predicts, got --target {options.target} "
            "too; leave one of them out"
        )
    return Answers(
        target=options.time or options.target,
        kind=options.kind,
        event=options.event,
        patient=options.patient,
        records_are_units=options.records_are_units,
        codes=tuple(_names(options.codes)),
        amounts=tuple(_names(options.amounts)),
        can_join=not options.query,
    )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _answered(options: argparse.Namespace, question: Question) -> argparse.Namespace:
    """The options as if what somebody types in answer had stood among them: a number, or more."""
    say(question.asked)
    for number, choice in enumerate(question.choices, 1):
        say(f"  {number}  {choice.means}  ({shlex.join(choice.options)})")
    while True:
        typed, more = input("number, or options; Enter for 1: ").strip() or "1", None
        with suppress(ValueError):  # digits that are no number, a quotation mark that none closes
            if typed.isdigit() and 1 <= int(typed) <= len(question.choices):
                more = question.choices[int(typed) - 1].options
            elif typed.startswith("--"):
                more = tuple(shlex.split(typed))
        if more is None:
            say(f"expected a number from 1 to {len(question.choices)}, or options with --")
            continue
        try:
            answered: argparse.Namespace = options.parser.parse_args(_again(options, *more)[1:])
        except UserError as error:
            say(str(error))
        else:
            return answered


def _ask(options: argparse.Namespace, survey: Survey, questions: Sequence[Question]) -> int:
    """What has to be known first: nothing is written, and the exit code says so."""
    # The command that is printed gives the likeliest answer to each question.
    likeliest = [word for question in questions for word in question.choices[0].options]
    faults = [*survey.faults, *(fault for table in survey.tables for fault in table.faults)]
    unread = options.tidy is None and any(fault.refused for fault in faults)
    tidies = unread and "--tidy" not in likeliest and not options.query
    tidy = _TIDY if tidies else ()
    following = shlex.join(["hubbub", *_again(options, *likeliest, *tidy)])
    if options.json:
        asked = [question.to_dict() for question in questions]
        emit({"ready": False, "out": None, "questions": asked, "next": following})
        return 1
    say(
        f"{', '.join(table.origin for table in survey.tables)}: read; please answer what "
        "the files cannot say"
    )
    for number, question in enumerate(questions, 1):
        say(f"{number}. {question.asked}")
        width = max(len(shlex.join(choice.options)) for choice in question.choices)
        for choice in question.choices:
            say(f"     {shlex.join(choice.options):{width}}  {choice.means}")
    if tidies:
        say("a run cannot read these files as they are: --tidy tidy also writes corrected copies")
    say("No study was written. Choose an option for each question, for example:")
    say(f"    {following}")
    return 1


def _again(options: argparse.Namespace, *more: str) -> list[str]:
    """The same command with more options, which replace those of before."""
    words = ["init", *map(str, options.files)]
    if options.query:
        words += ["--query", str(options.query), "--data", str(options.data)]
        words += [word for pair in options.person for word in ("--person", pair)]
    for name in ("target", "patient", "kind", "time", "event", "test_share", "join"):
        value = getattr(options, name)
        option = f"--{name.replace('_', '-')}"
        joins = name == "patient" and "--join" in more
        if value is not None and option not in more and not joins:
            words += [option, str(value)]
    for name in ("--codes", "--amounts"):  # these add up
        listed = _names(getattr(options, name[2:]))
        if name in more[:-1]:
            place = more.index(name) + 1
            more = (*more[:place], ",".join([*listed, more[place]]), *more[place + 1 :])
        elif listed:
            words += [name, ",".join(listed)]
    words += ["--records-are-units"] if options.records_are_units else []
    words += ["--replace"] if options.replace and "--replace" not in more else []
    words += ["--out", str(options.out)] if options.out != Path("study.toml") else []
    if options.tidy is not None and "--tidy" not in more:
        words += ["--tidy", str(options.tidy)]
    return [*words, *more]


def _faults(drafted: Draft, study: Study, *, tidied: bool) -> list[Fault]:
    """What a run would refuse of the files that the study names, and what is odd."""
    if not tidied:
        return [*drafted.faults, *all_faults(drafted.tables, study.data, drafted.tables)]
    # In copies patients are numbered anew, so keys that look alike are seen in the files alone.
    faults = [
        fault
        for table in drafted.tables
        if drafted.patient and drafted.patient in table.header
        for fault in likely_namesakes(table, drafted.patient)
    ]
    faults += [
        replace(fault, remedy="left out of the copy", refused=False)
        for table in drafted.tables
        for fault in table.faults
        if fault.row is not None
    ]
    return faults + checked(study, drafted.parties[: len(drafted.tables)], Path())


def _described(drafted: Draft, left_out: dict[str, int], faults: Sequence[Fault]) -> dict[str, Any]:
    target = drafted.target
    return {
        "parties": drafted.parties,
        "target": target.name,
        "guessed": target.guessed,
        "other_targets": target.others,
        "questions": [],
        "positive": target.positive,
        "negative": target.negative,
        "classes": target.classes,
        "kind": target.outcome.kind if target.outcome else "class",
        "columns": [column.name for column in drafted.used],
        "patient": drafted.patient,
        "left_out": {column.name: column.note for column in drafted.columns if not column.column},
        "validation": drafted.validation_epsilon,
        "private": drafted.private,
        "rows_left_out": left_out,
        "faults": [fault.to_dict() for fault in faults],
    }


def _show(options: argparse.Namespace, drafted: Draft, left_out: dict[str, int]) -> None:
    target = drafted.target
    if (outcome := target.outcome) is None:
        ones, zeros = ", ".join(target.positive), ", ".join(target.negative)
        meaning = ", ".join(target.classes) or f"1 is {ones}; 0 is {zeros}"
    elif outcome.grid:
        meaning = f"time until {outcome.event}, observed up to {outcome.grid[-1]:g}"
    else:
        meaning = f"{outcome.kind} from {outcome.low:g} to {outcome.high:g}"
    others = f" (perhaps {', '.join(target.others)})" if target.others else ""
    guess = (f"guessed: choose another with --target{others}",) if target.guessed else ()
    note = "; ".join((*guess, *target.notes, *target.seen))
    rows = [(target.name, f"the target: {meaning}", note)]
    for of_column in drafted.columns:
        column = of_column.column
        if column is None:
            becomes = "left out"
        elif column.categories:
            becomes = f"one of {', '.join(column.categories)}"
        else:
            low, high = column.bounds
            steps = f" in steps of {column.step:g}" if column.step else ""
            becomes = f"a number from {low:g} to {high:g}{steps}"
        rows.append((of_column.name, becomes, of_column.note))
    title = f"{options.out}: {len(drafted.parties)} silos, {', '.join(drafted.parties)}"
    table(title, ("column", "becomes", "note"), rows, texts=3)
    for (party, rows_lost), copied in zip(left_out.items(), drafted.tables, strict=False):
        lost = "; rows that are not records, or have no target, are left out" if rows_lost else ""
        path = options.tidy / f"{party}.csv"
        say(f"copied to {path}: {several(copied.read - rows_lost, 'record')}{lost}")


def _last_words(
    options: argparse.Namespace, drafted: Draft, study: Study, faults: Sequence[Fault]
) -> list[str]:
    """What the draft costs, and what of it is from records."""
    part = drafted.validation_epsilon
    lines = [words] if (words := too_wide(study)) else []
    if part:
        lines.append(
            f"epsilon {EPSILON:g}: {EPSILON - part:g} trains the model, {part:g} measures "
            "how good it is ([validation]). Without [validation] training has all of it, "
            "and only public records (data.test) can measure the model"
        )
    else:
        lines.append(f"epsilon {EPSILON:g}: all of it trains the model; {_TOO_FEW}")
    lines.append(
        "Read from your files: agree on these with your partners, or replace them, before you "
        f"share the study: {'; '.join(drafted.private)}"
    )
    lines.append("nothing was sent; the list above is for you only")
    is_read = not any(fault.refused for fault in faults)
    if not drafted.files and (options.tidy is not None or is_read):
        lines.append(
            "the files' names do not match a pattern such as silo-{name}.csv, which a study needs"
        )
    if any(fault.between_sites for fault in faults):
        lines.append(
            "agree on units with the sites that the notes above name before anybody trains"
        )
    return lines


def _next(
    options: argparse.Namespace, drafted: Draft, faults: Sequence[Fault], *, is_ready: bool
) -> tuple[str, list[str]]:
    """What is to be done next, and the command for it."""
    out, then = str(options.out), "then see what it guarantees with"
    if is_ready and len(drafted.tables) == 1:
        words = f"put the other silos' names into [parties] of the study; {then}"
        return words, ["plan", out]
    if is_ready:
        words = f"review {out}; {then} hubbub plan, and train with"
        return words, ["run", out]
    if options.tidy is not None:
        words = "a run still refuses what is marked as wrong above"
        return f"{words}: correct it, and check again with", ["check", out]
    if options.query:
        faulty = {fault.file for fault in faults if fault.refused}
        silos = zip(drafted.parties, drafted.tables, strict=False)
        named = (name for name, table in silos if table.origin in faulty)
        party = next(named, drafted.parties[0])
        words = "correct them in the database, or let each site map its own, beginning with"
        mapping = ["--mapping", str(options.data / "mapping.toml")]
        command = ["check", out, "--silo", party, "--data", str(options.data), *mapping]
        return f"{_MISFITS}: {words}", command
    guessed = ["--target", drafted.target.name] if drafted.target.guessed else []
    words = "a run cannot read these files yet: correct them, or write corrected copies with"
    return words, _again(options, *guessed, *_TIDY, "--replace")


def list_faults(faults: Sequence[Fault]) -> None:
    """All faults, those first that a run refuses; of one kind in a file only some."""
    kinds: dict[tuple[bool, str, str], list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: not fault.refused):
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


def _check(options: argparse.Namespace) -> int:
    study = Study.load(options.study)
    notes = about_own_code(study)
    if not options.json:
        for note in notes:
            say(f"note: {note}")
    if not study.data.is_declared:
        words = f"the records come from {study.data.source}, which is called only during a run"
        result = {"faults": [], "files": False, "notes": notes}
        answer(options, result, f"{words}: there is no file to check")
        return 0
    parties = [*study.parties.names, *([silo_records.TEST] if study.data.test else [])]
    if options.mapping is not None and (options.silo is None or options.mapping.exists()):
        raise UserError(
            "expected --mapping with --silo and the name of a new file, got no --silo or a file "
            "that exists; add --silo, or name another file"
        )
    if options.silo is not None and options.silo not in parties:
        raise UserError(
            f"expected --silo to be one of {', '.join(parties)}, got {options.silo!r}; choose one "
            "of them"
        )
    if options.mapping is not None:
        text = mapping_draft(read_site(study, options.silo, options.data), options.silo, study.data)
        with writing(options.mapping):
            write_text(options.mapping, text)
        advice = "review it; it stays on this machine"
        if not text:
            advice = "no mapping seems to be needed: the file is empty"
        answer(options, {"mapping": str(options.mapping)}, f"wrote {options.mapping}; {advice}")
        return 0
    names = parties if options.silo is None else [options.silo]
    files = (silo_records.file_of(study, name, options.data) for name in names)
    _tell_if_large([path for path in files if path is not None])
    faults = checked(study, names, options.data)
    refused = sum(fault.refused for fault in faults)
    if options.json:
        listed = [fault.to_dict() for fault in faults]
        emit({"faults": listed, "files": True, "refused": refused, "notes": notes})
    else:
        list_faults(faults)
        fine = f"a run can read the files of {', '.join(names)}"
        wrong = "a run refuses these files; this list"
        if study.data.is_asked:  # no cell keeps a silo away (P31)
            wrong = f"{_MISFITS}; correct or map them (--mapping); this list"
        say(f"{wrong} may quote cells, so it is for you only" if refused else fine)
    return 2 if refused else 0
