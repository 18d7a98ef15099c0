"""From facts and what people have written to the dossier: every sentence, with its standing.

`chapters.txt` is the dossier with named places. A line that begins with # is the title of a
chapter, one with ## a heading in it, and prose below either says what it is about. Each other line
asks something: a name in braces is that of a function of `statements.py`, whose sentence answers
it; a name in brackets is that of a blank, for a person to fill in.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Generic, TypeVar

import tomli_w

from hubbub.core.errors import UserError
from hubbub.desk.report.dossier import statements
from hubbub.desk.report.dossier.facts import Facts, NotShownError, Run

NOT_SHOWN = "not shown"
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_PLACE = re.compile(r"(.+) (?:\{(\w+)\}|\[([a-z-]+)\])")


@dataclass(frozen=True, kw_only=True)
class BoardQuestion:
    """What somebody asks, and the sentence that answers it from members of the evidence."""

    ask: str  # what is asked, in a few words; shown also where nothing answers it
    # the sentence; NotShownError where what it needs was not found to hold
    words: Callable[[Run], str]


@dataclass(frozen=True, kw_only=True)
class Blank:
    """What only a person can write: the name by which it is filled in, and what is asked."""

    name: str
    ask: str
    text: str = ""  # what somebody has written there; empty while it is open


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The beginning of a part of a chapter, and what it is about."""

    title: str
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A question as it was answered."""

    ask: str
    text: str  # the sentence, or why there is none
    standing: str  # "re-derived", "signed", or "not shown"
    fields: tuple[str, ...]  # members of the evidence that it rests on; none if it is not shown


Part = BoardQuestion | Blank | Heading
Shown = Sentence | Blank | Heading
P = TypeVar("P", Part, Shown)


@dataclass(frozen=True, kw_only=True)
class Chapter(Generic[P]):
    """One of the dossier's documents: as `chapters.txt` has it, or answered."""

    title: str
    source: str  # which text its questions are from, and what this chapter is not
    parts: Sequence[P]

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Its sentences in order."""
        return tuple(part for part in self.parts if isinstance(part, Sentence))

    @property
    def open(self) -> tuple[str, ...]:
        """Names of what a person has still to write in it."""
        blanks = (part for part in self.parts if isinstance(part, Blank))
        return tuple(blank.name for blank in blanks if not blank.text)


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """All of it."""

    study: str
    study_id: str
    chapters: tuple[Chapter[Shown], ...]
    trusted: tuple[str, ...]  # claims that nothing can show, each a clause that begins with "that"
    wrongs: tuple[str, ...]  # claims that were found to be wrong, with the reason

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """All sentences in order."""
        return tuple(sentence for chapter in self.chapters for sentence in chapter.sentences)

    @property
    def open(self) -> tuple[str, ...]:
        """Names of what a person has still to write."""
        return tuple(dict.fromkeys(name for chapter in self.chapters for name in chapter.open))

    @property
    def counts(self) -> Mapping[str, int]:
        """How many sentences stand how."""
        return Counter(sentence.standing for sentence in self.sentences)


def _chapters(text: str) -> Iterator[Chapter[Part]]:
    for chapter in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        title, source, *lines = filter(None, chapter.splitlines())
        parts: list[Part] = []
        for line in lines:
            place = _PLACE.fullmatch(line)
            if line.startswith("## "):
                parts.append(Heading(title=line.removeprefix("## ")))
            elif place and place[2]:
                parts.append(BoardQuestion(ask=place[1], words=getattr(statements, place[2])))
            elif place:
                parts.append(Blank(name=place[3], ask=place[1]))
            elif isinstance(parts[-1], Heading):
                parts[-1] = replace(parts[-1], about=line)
        yield Chapter(title=title, source=source, parts=tuple(parts))


CHAPTERS = tuple(_chapters((files(__package__) / "chapters.txt").read_text(encoding="utf-8")))


def compose(facts: Facts, written: Mapping[str, str] | None = None) -> Dossier:
    """The dossier of a run.

    Guarantees:
        1. A sentence rests on members of the evidence that were found to hold, and names them;
           where one was not, it says “not shown”, why, and nothing else.
        2. What a person has to write is what that person wrote, or open.

    Args:
        facts: members of the evidence, and the findings about them.
        written: what people have written, by the names of blanks.
    """

    def answered(part: Part) -> Shown:
        if isinstance(part, Blank):
            return replace(part, text=(written or {}).get(part.name, "").strip())
        return sentence_of(part, facts) if isinstance(part, BoardQuestion) else part

    verdicts = [(claim, verdict) for claim, verdict, _ in facts.findings]
    return Dossier(
        study=str(facts.value("study.name")),
        study_id=str(facts.value("study.id")),
        chapters=tuple(
            Chapter(
                title=chapter.title, source=chapter.source, parts=[*map(answered, chapter.parts)]
            )
            for chapter in CHAPTERS
        ),
        trusted=tuple(claim for claim, verdict in verdicts if verdict == "not verifiable"),
        wrongs=tuple(f"{claim}: {why}" for claim, why in verdicts if why.startswith("wrong")),
    )


def sentence_of(question: BoardQuestion, facts: Facts) -> Sentence:
    """A question's sentence, or that nothing shows it."""
    run = Run(facts)
    try:
        text = question.words(run)
        return Sentence(ask=question.ask, text=text, standing=run.standing, fields=tuple(run.noted))
    except NotShownError as why:
        hidden = str(why)
    except _MALFORMED:  # what a party signs of itself may be anything
        hidden = "the evidence does not say it in a readable form"
    return Sentence(ask=question.ask, text=f"Not shown: {hidden}.", standing=NOT_SHOWN, fields=())


def blanks_of() -> dict[str, Blank]:
    """All blanks by name, in order."""
    parts = (part for chapter in CHAPTERS for part in chapter.parts)
    return {part.name: part for part in parts if isinstance(part, Blank)}


def draft_of() -> str:
    """A file with every blank open, and what is asked above it."""
    asked = "# Questions that only people can answer: write a text for each name."
    lines = [f"{asked} Unanswered ones stay open.", ""]
    for name, blank in blanks_of().items():
        lines += [f"# {blank.ask}", tomli_w.dumps({name: ""})]
    return "\n".join(lines)


def read_written(text: str, where: str) -> Mapping[str, str]:
    """What people have written, by name."""
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"expected TOML in {where}, got: {error}; correct it") from None
    names = blanks_of()
    if odd := sorted(set(written) - set(names)):
        raise UserError(
            f"expected names of questions in {where}, got {', '.join(odd)}; they are "
            f"{', '.join(names)}"
        )
    if other := [name for name, value in written.items() if not isinstance(value, str)]:
        raise UserError(
            f"expected a text for each name in {where}, got something else for {', '.join(other)}"
        )
    return written
