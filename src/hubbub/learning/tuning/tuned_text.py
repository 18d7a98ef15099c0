"""A study's file with other settings of its training, and everything else as people wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hubbub.core.errors import StudyError
from hubbub.core.study.study import Study
from hubbub.learning.study.training import learning_of

_KEY = re.compile(r"\s*([A-Za-z_]+)\s*=")
_HEADER = re.compile(r"\s*\[+\s*([^\]]*?)\s*\]+\s*(#.*)?")


def tuned_text(before: Study, after: Study) -> str:
    """The text of `after`: that of `before` with other lines in `[training]`.

    Where those lines are written in a way that is not known here, the whole is written anew.

    Guarantees:
        1. It is read as `after`.
    """
    _, training = learning_of(after)
    optimizer = dict(training.optimizer)
    shown = ", ".join(
        f'{key} = "{optimizer[key]}"' if key != "lr" else f"lr = {optimizer[key]:g}"
        for key in ("name", "lr", "schedule")
    )
    lines = {
        "steps": f"steps = {training.steps}",
        "clip_norm": f"clip_norm = {training.clip_norm:g}",
        "optimizer": f"optimizer = {{ {shown} }}",
    }
    text = _replaced(before.toml, lines)
    if training.evaluate is not None:
        every = r"(evaluate\s*=\s*\{[^}]*\bevery\s*=\s*)\d+"
        text = re.sub(every, rf"\g<1>{training.evaluate.every}", text)
    try:
        same = Study.parse(text).id == after.id
    except StudyError:
        same = False
    return text if same else after.as_toml()


def _replaced(text: str, lines: Mapping[str, str]) -> str:
    """The text with these lines in the table `[training]`, those that it lacks behind its head."""
    text_lines: list[str] = []
    inside, left = False, dict(lines)
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        inside = header.group(1) == "training" if header else inside
        key = _KEY.match(line)
        if inside and key and key.group(1) in lines:
            if key.group(1) in left:
                text_lines.append(left.pop(key.group(1)))
            continue
        text_lines.append(line)
    head = next(
        (k for k, line in enumerate(text_lines) if re.match(r"\s*\[training\]", line)), None
    )
    if head is not None:
        text_lines[head + 1 : head + 1] = left.values()
    return "\n".join(text_lines) + "\n"
