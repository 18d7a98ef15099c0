"""What a party writes down as it goes: one line an event, for machines and for people.

A line is a JSON object with the time, the party, the event and a few plain values. Nothing of it is
secret: callers give counts of bytes, seconds, names and sentences of errors, never values of
records, keys or vectors. The last known state is also kept as `status.json` and, for Prometheus'
textfile collector, as `metrics.prom`, each replaced all at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.disk import write_text
from hubbub.network.event_messages import sentence

LOG, STATUS, METRICS = "events.jsonl", "status.json", "metrics.prom"

Say = Callable[[str], None]


@dataclass(kw_only=True)
class EventLog:
    """Where one party's events go.

    Args:
        party: its name.
        folder: of the three files; None: nothing is written.
        say: told each event as a sentence.
    """

    party: str
    folder: Path | None = None
    say: Say = lambda _: None
    _state: dict[str, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, event: str, **values: Any) -> None:
        """Write an ordinary event down."""
        self._write("info", event, values)

    def warn(self, event: str, **values: Any) -> None:
        """Write down an event that somebody should look at."""
        self._write("warning", event, values)

    def state(self, **values: Any) -> None:
        """Change what is known of the present: step, epsilon, bytes, seconds."""
        with self._lock:
            self._state.update(values)
            if self.folder is None:
                return
            whole = {"party": self.party, "time": time.time(), **self._state}
            with self._surviving():
                write_text(self.folder / STATUS, json.dumps(whole, indent=2) + "\n", durable=False)
                write_text(self.folder / METRICS, _exposition(self.party, whole), durable=False)

    def add(self, **amounts: float) -> None:
        """Add to what is counted in the state, without writing it yet."""
        with self._lock:
            for name, amount in amounts.items():
                self._state[name] = self._state.get(name, 0) + amount

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        line = {"time": time.time(), "level": level, "party": self.party, "event": event, **values}
        with self._lock:
            if self.folder is not None:
                with self._surviving(), (self.folder / LOG).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        self.say(sentence(event, values))

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """A full disk costs lines of the event log, and no answer; ledgers are elsewhere."""
        try:
            yield
        except OSError as error:
            self.say(f"expected to write the event log in {self.folder}, got: {error.strerror}")


def _exposition(party: str, state: dict[str, Any]) -> str:
    """The numbers of a state in Prometheus' text format."""
    lines = []
    for name, value in sorted(state.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        lines += [f"# TYPE hubbub_{name} gauge", f'hubbub_{name}{{party="{party}"}} {value!r}']
    return "\n".join(lines) + "\n"
