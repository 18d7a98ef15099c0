"""From facts and what people have written to the dossier: every sentence, with its standing."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tomli_w

from hubbub.core.errors import UserError
from hubbub.desk.report.dossier.chapters import CHAPTERS
from hubbub.desk.report.dossier.dossier_parts import (
    Blank,
    BoardQuestion,
    Heading,
    Part,
    Sentence,
    Written,
)
from hubbub.desk.report.dossier.facts import Facts, NotShownError, Reader

NOT_SHOWN = "not shown"
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
Shown = Sentence | Written | Heading


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A chapter, answered.

    Args:
        title, source: as in the chapter.
        parts: sentences, blanks and headings in order.
    """

    title: str
    source: str
    parts: tuple[Shown, ...]

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Its sentences in order."""
        return tuple(part for part in self.parts if isinstance(part, Sentence))

    @property
    def open(self) -> tuple[str, ...]:
        """Names of what a person has still to write in it."""
        blanks = (part for part in self.parts if isinstance(part, Written))
        return tuple(part.blank.name for part in blanks if not part.text)


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """All of it.

    Args:
        study, study_id: whose run it is about.
        chapters: in order.
        trusted: claims that nothing can show, each a clause that begins with "that".
        wrongs: claims that were found to be wrong, with the reason.
    """

    study: str
    study_id: str
    chapters: tuple[Composed, ...]
    trusted: tuple[str, ...]
    wrongs: tuple[str, ...]

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
    given = written or {}
    return Dossier(
        study=str(facts.value("study.name")),
        study_id=str(facts.value("study.id")),
        chapters=tuple(
            Composed(title=one.title, source=one.source, parts=_shown(one.parts, facts, given))
            for one in CHAPTERS
        ),
        trusted=tuple(claim for claim, verdict, _ in facts.findings if verdict == "not verifiable"),
        wrongs=tuple(
            f"{claim}: {verdict}"
            for claim, verdict, _ in facts.findings
            if verdict.startswith("wrong")
        ),
    )


def _shown(parts: Sequence[Part], facts: Facts, written: Mapping[str, str]) -> tuple[Shown, ...]:
    return tuple(_answered(part, facts, written) for part in parts)


def _answered(part: Part, facts: Facts, written: Mapping[str, str]) -> Shown:
    if isinstance(part, Blank):
        return Written(blank=part, text=written.get(part.name, "").strip())
    return sentence_of(part, facts) if isinstance(part, BoardQuestion) else part


def sentence_of(question: BoardQuestion, facts: Facts) -> Sentence:
    """A question's sentence, or that nothing shows it."""
    reader = Reader(facts)
    try:
        text = question.words(reader)
        standing = reader.standing
    except NotShownError as why:
        hidden = str(why)
    except _MALFORMED:  # what a party signs of itself may be anything
        hidden = "the evidence says it in no form that can be read"
    else:
        return Sentence(ask=question.ask, text=text, standing=standing, fields=reader.fields)
    return Sentence(ask=question.ask, text=f"Not shown: {hidden}.", standing=NOT_SHOWN, fields=())


# What people write for the dossier: a TOML file of a text for each blank, by name.


def blanks_of() -> dict[str, Blank]:
    """All blanks by name, in order."""
    return {part.name: part for one in CHAPTERS for part in one.parts if isinstance(part, Blank)}


def draft_of() -> str:
    """A file with every blank open, and what is asked above it."""
    lines = ["# What only people can write: a text for each name. Open ones stay open by name.", ""]
    for name, blank in blanks_of().items():
        lines += [f"# {blank.ask}", tomli_w.dumps({name: ""})]
    return "\n".join(lines)


def read_written(text: str, where: str) -> Mapping[str, str]:
    """What people have written, by name.

    Raises:
        UserError: the text is no TOML, a name is unknown, or a value is no text.
    """
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"expected TOML in {where}, got: {error}; mend it") from None
    known = blanks_of()
    odd = sorted(set(written) - set(known))
    if odd:
        raise UserError(
            f"expected names of blanks in {where}, got {', '.join(odd)}; they are "
            f"{', '.join(known)}"
        )
    other = [name for name, value in written.items() if not isinstance(value, str)]
    if other:
        raise UserError(f"expected texts in {where}, got something else for {', '.join(other)}")
    return written
