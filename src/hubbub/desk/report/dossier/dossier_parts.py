"""What a chapter of the dossier is made of: questions with their sentences, and blanks.

A `BoardQuestion` says how its sentence is made of what a `Reader` gives; a `Blank` is for a person.
Both are data: nothing is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubbub.desk.report.dossier.facts import Reader

Words = Callable[[Reader], str]


@dataclass(frozen=True, kw_only=True)
class BoardQuestion:
    """What somebody asks, and the sentence that answers it from members of the evidence.

    Args:
        ask: what is asked, in a few words; shown also where nothing answers it.
        words: the sentence; NotShownError where what it needs was not found to hold.
    """

    ask: str
    words: Words


@dataclass(frozen=True, kw_only=True)
class Blank:
    """What only a person can write.

    Args:
        name: by which it is filled in, of small letters and hyphens.
        ask: what is to be written.
    """

    name: str
    ask: str


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The beginning of a part of a chapter, and what it is about."""

    title: str
    about: str = ""


Part = BoardQuestion | Blank | Heading


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One of the dossier's documents.

    Args:
        title: its name.
        source: which text its questions are from, and what this chapter is not.
        parts: in order.
    """

    title: str
    source: str
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A question as it was answered.

    Args:
        ask: the question.
        text: the sentence, or why there is none.
        standing: "re-derived", "signed", or "not shown".
        fields: members of the evidence that it rests on; none if it is not shown.
    """

    ask: str
    text: str
    standing: str
    fields: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Written:
    """A blank, and what a person has written there; "" while it is open."""

    blank: Blank
    text: str
