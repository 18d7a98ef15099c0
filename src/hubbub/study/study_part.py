"""An optional table of a study: what is asked for beside, or instead of, a training."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol


class StudyPart(Protocol):
    """An optional table of a study.

    Attributes:
        title: of the table.
    """

    title: ClassVar[str]

    @property
    def epsilon(self) -> float:
        """Its part of the study's; 0 where it has all of it."""

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from."""
