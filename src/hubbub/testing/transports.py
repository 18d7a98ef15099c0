"""The contract of a transport: blobs to parties, and their answers back, or that there is none.

Nothing that is secret or proven rests on a transport: frames are signed and sealed, and each party
checks what it is handed. What is held here is that an honest one can be used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from hubbub.site.network.envelope import Missing, Phase
from hubbub.testing.laws import completing, hold, trying

_SIZES = (1, 1000, 65_537, (3 << 20) + 1)  # bytes; what a transport cuts into pieces is among them
_ENOUGH = 60.0  # seconds that an honest answer may take

# What a party answers, of what it is handed; and a phase that reaches parties, while it is open.
Answers = Callable[[bytes], bytes]
Connect = Callable[[Mapping[str, Answers]], AbstractContextManager[Phase]]


def check_transport(
    connect: Connect,
    parties: Sequence[str],
    *,
    deadline: float = 2.0,
) -> None:
    """Hold a transport to what a session relies on.

    Laws:
        1. Each party is handed what is meant for it, once or more often, and nothing else; its
           answer comes back under its name, once. Neither is changed, however long it is.
        2. Who is not there, or has not answered at the deadline, is `Missing`; the others' answers
           come all the same.
        3. An answer that comes after the deadline is none in a later phase, of the same name too.
        4. A phase that nobody listens to any more harms none after it.

    Args:
        connect: from parties' answers to a `Phase` that reaches them, as long as it is open. Those
            of `parties` that are not among them are not there.
        parties: three or more names.
        deadline: seconds for a phase in which somebody does not answer.

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.
    """
    with trying(connect):
        _carries(connect, parties)
        _misses(connect, parties, deadline)


def _carries(
    connect: Connect,
    parties: Sequence[str],
) -> None:
    """Laws 1 and 4: whatever is said arrives, where it is meant to."""
    handed: set[tuple[str, bytes]] = set()
    wanted: set[tuple[str, bytes]] = set()

    def echo(name: str) -> Answers:
        def answer(blob: bytes) -> bytes:
            handed.add((name, blob))
            return name.encode() + blob[::-1]

        return answer

    with connect({name: echo(name) for name in parties}) as phase:
        for size in _SIZES:
            requests = {name: os.urandom(size) for name in parties}
            wanted |= {*requests.items()}
            answers = _answers(phase, requests, _ENOUGH)
            hold(
                f"each party is handed its own {size} bytes, and no others",
                handed == wanted,
                f"{len(handed)} blobs of {len(wanted)}, or others",
                "hand over each blob as it is, to the party that it is for",
            )
            for name, blob in requests.items():
                hold(
                    f"a party's answer to {size} bytes comes back under its name as it was",
                    answers[name] == name.encode() + blob[::-1],
                    "another",
                    "give back the bytes that the party gave",
                )
            left = phase("left", requests, _ENOUGH)  # which nobody listens to
            next(iter(left))
            del left


def _misses(
    connect: Connect,
    parties: Sequence[str],
    deadline: float,
) -> None:
    """Laws 2 and 3: who does not answer in time, and who is not there."""
    late, absent, *others = parties
    may_answer = threading.Event()

    def waits(blob: bytes) -> bytes:
        if blob == b"first":
            may_answer.wait(_ENOUGH)
        return blob

    answering: dict[str, Answers] = {late: waits, **dict.fromkeys(others, lambda blob: blob)}
    try:
        with connect(answering) as phase:
            answers = _answers(phase, dict.fromkeys(parties, b"first"), deadline)
            for name in (late, absent):
                hold(
                    "who does not answer in time is Missing",
                    isinstance(answers[name], Missing),
                    "an answer",
                    "yield Missing at the deadline, in words that a person understands",
                )
            hold(
                "the others' answers come all the same",
                all(answers[name] == b"first" for name in others),
                "others, or none",
                "wait for each party by itself",
            )
            may_answer.set()
            with completing("a later phase has an answer", "let no party wait for another phase"):
                again = _answers(phase, {late: b"second"}, _ENOUGH)[late]
            hold(
                "an answer that is late is none in a later phase",
                again == b"second",
                "the late one" if again == b"first" else f"{again!r:.60}",
                "bind each answer to its request",
            )
    finally:
        may_answer.set()


def _answers(
    phase: Phase, requests: Mapping[str, bytes], deadline: float
) -> dict[str, bytes | Missing]:
    """The answers of a phase, one of each party that was asked."""
    answers = list(phase("test", requests, deadline))
    names = sorted(name for name, _ in answers)
    hold(
        "every party that was asked has one answer, or is Missing once",
        names == sorted(requests),
        ", ".join(names) or "none",
        "yield each name once, and no other",
    )
    return dict(answers)
