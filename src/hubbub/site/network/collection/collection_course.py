"""How the aggregator goes on with whoever is there, until the sum of a fixed set opens.

Every few seconds it looks who is there. Whom something is due of is asked for it, everybody else is
told that nothing is, and how far it is. What comes is on the disk before anything follows from it
(`collector_box.py`), so the process may end at any moment and go on later. The set is fixed when
everybody has come, or time is up and enough have; then all nodes promise it, then all tell their
totals. Nothing here is trusted with privacy (docs/privacy.md P30).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.session.ask import Absent, Call
from hubbub.site.collected.deposit import read_deposit
from hubbub.site.network.collection.collector_box import CollectorBox
from hubbub.site.network.collection.reminders import next_reminder
from hubbub.site.network.event_log import WAITING
from hubbub.site.network.requests import Requests

_PAUSE = 5.0  # seconds between two looks at who is there
_LONGEST_PAUSE = 600.0  # until one that has refused, and stays, is asked again
Due = dict[int, tuple[Call, list[bytes]]]


def day_of(seconds: float) -> str:
    """A time as people write it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


@dataclass(kw_only=True)
class Collecting:
    """One collection while it goes on.

    Args:
        box: what was taken so far.
        requests: asks the parties.
        keys: the aggregator's.
        study: its name, for people.
        until: seconds since 1970; then enough are enough.
        check: raises where there is nothing to go on for.
        wall: the time, seconds since 1970.
    """

    box: CollectorBox
    requests: Requests
    keys: Keys = field(repr=False)
    study: str
    until: float
    check: Callable[[], None]
    wall: Callable[[], float] = time.time
    _remind_at: float = 0.0
    _shown: dict[int, list[int]] = field(default_factory=dict)
    _pauses: dict[int, tuple[float, float]] = field(default_factory=dict)  # until, and how long

    def run(self) -> None:
        """Go on until the sum can be taken.

        Raises:
            UserError: the study is approved here no more.
            IntegrityError: the disk does not take what has come.
        """
        self._remind_at = next_reminder(self.wall(), self.until)
        self._tell()
        while not self.box.collector.is_complete:
            self.check()
            if not self.step():
                self.requests.timeouts.clock.sleep(_PAUSE, self.check)
        self._greeted({})  # whoever is there need not wait for more

    def step(self) -> bool:
        """Ask who is there for what is due; whether anything has come."""
        self._fix_if_due()
        due = self._due()
        there = self._greeted(due)
        taken = False
        for call in dict.fromkeys(due[index][0] for index in there):
            asked = {i: due[i][1] for i in there if due[i][0] is call}
            for index, answer in self.requests.ask(call, asked, self._id):
                if isinstance(answer, Absent) or not self._take(call, index, answer):
                    self._ask_later(index)
                else:
                    taken, _ = True, self._pauses.pop(index, None)
        self._fix_if_due()
        self._tell()
        self._remind()
        return taken

    def _ask_later(self, index: int) -> None:
        """Who has not done its part is asked again, less and less often."""
        last = self._pauses.get(index, (0.0, _PAUSE / 2))[1]
        pause = min(2 * last, _LONGEST_PAUSE)
        self._pauses[index] = (self.requests.timeouts.clock.now() + pause, pause)

    @property
    def _id(self) -> bytes:
        return self.box.collector.place.id

    @property
    def _quorum(self) -> int:
        return self.box.collector.round_parameters.quorum

    def _due(self) -> Due:
        """From whom what is to be had, as things are."""
        collector, roster = self.box.collector, self.requests.roster
        keys = [collector.node_keys[node] for node in sorted(collector.node_keys)]
        base, due = [collector.collect, *keys], Due()
        if collector.opening is None:
            left = set(roster.nodes) - collector.node_keys.keys()
            return {node: (Call.COLLECT_KEY, [collector.collect]) for node in left}
        if not collector.fixed:
            for silo in set(roster.silos) - collector.deposits.keys():
                due[silo] = (Call.COLLECT_DEPOSIT, base)
            for node in roster.nodes:
                if silos := collector.to_look(node):
                    self._shown[node] = silos
                    due[node] = (Call.COLLECT_LOOK, [*base, *self._heads(silos)])
            return due
        heads = self._heads(collector.named)
        for node in roster.nodes:
            if node not in collector.promises:
                due[node] = (Call.COLLECT_PROMISE, [*base, collector.fixed, *heads])
            elif collector.all_promised and node not in collector.totals:
                promises = [collector.promises[promise] for promise in sorted(collector.promises)]
                due[node] = (Call.COLLECT_TOTAL, [*base, *heads, *promises])
        return due

    def _heads(self, silos: Sequence[int]) -> list[bytes]:
        """DEPOSITs, without the vectors."""
        return [self.box.collector.deposits[silo].deposit for silo in silos]

    def _greeted(self, due: Mapping[int, object]) -> list[int]:
        """Of whom something is due, who is there and asked; others are told that nothing is.

        Who has refused and went away is asked as soon as it comes again.
        """
        rest = {i: [self._receipt(i)] for i in self._everybody if i not in due}
        there = []
        for index, one in self._asked(Call.PING, dict.fromkeys(sorted(due), ())):
            if isinstance(one, Absent):
                self._pauses.pop(index, None)
            else:
                there.append(index)
        for _ in self._asked(Call.COLLECT_REST, rest):
            pass
        now = self.requests.timeouts.clock.now()
        return [i for i in there if now >= self._pauses.get(i, (0.0, 0.0))[0]]

    def _asked(
        self, call: Call, requests: Mapping[int, Sequence[bytes]]
    ) -> list[tuple[int, object]]:
        return list(self.requests.ask(call, requests, self._id)) if requests else []

    @property
    def _everybody(self) -> range:
        return range(1, len(self.requests.roster.parties))

    def _receipt(self, index: int) -> bytes:
        """How far it is, and what has come of this party."""
        collector, place = self.box.collector, self.box.collector.place
        own = collector.deposits.get(index)
        said = {
            "until": int(self.until),
            "come": len(collector.deposits),
            "quorum": self._quorum,
            "taken": "" if own is None else read_deposit(place, own.deposit).digest.hex(),
        }
        payload = json.dumps(said).encode()
        return place.frame(Tag.RECEIPT, 0, payload, receiver=index).sealed(self.keys)

    def _take(self, call: Call, index: int, answer: list[bytes]) -> bool:
        """What a party has answered; whether it could be used."""
        name = self.requests.roster.name(index)
        try:
            if call is Call.COLLECT_DEPOSIT:
                self.box.take_deposit(index, answer)
                come, silos = len(self.box.collector.deposits), len(self.requests.roster.silos)
                self.requests.note("came", whom=name, come=come, silos=silos)
                return True
            if len(answer) != 1:
                raise ProtocolError("expected one frame, got others", culprit="relay")
            if call is Call.COLLECT_LOOK:
                self._looked(index, answer[0])
            else:
                take = {
                    Call.COLLECT_KEY: self.box.take_key,
                    Call.COLLECT_PROMISE: self.box.take_promise,
                    Call.COLLECT_TOTAL: self.box.take_total,
                }
                take[call](index, answer[0])
        except ProtocolError as error:
            self.requests.garbled(index, str(error), error.culprit)
            return False
        return True

    def _looked(self, node: int, frame: bytes) -> None:
        """A node says whose seeds do not open; it is believed, and so is the silo: neither is."""
        roster = self.requests.roster
        for silo in sorted(self.box.take_look(node, self._shown[node], frame)):
            self.requests.warn("seed", whom=roster.name(node), silo=roster.name(silo))

    def _fix_if_due(self) -> None:
        """Fix the set when all have come, or time is up and enough have."""
        collector, roster = self.box.collector, self.requests.roster
        if collector.fixed or collector.opening is None:
            return
        looked = not any(collector.to_look(node) for node in roster.nodes)
        all_here = len(collector.deposits) == len(roster.silos)
        if (
            looked
            and len(collector.ready) >= self._quorum
            and (all_here or self.wall() >= self.until)
        ):
            self.box.fix(self.keys)
            nodes = ", ".join(roster.name(node) for node in roster.nodes)
            self.requests.note("fixed", silos=len(collector.named), missing=nodes)

    @property
    def missing(self) -> list[str]:
        """Whom it waits for."""
        collector, roster = self.box.collector, self.requests.roster
        left: set[int] = set(self._due())
        if not collector.fixed and collector.opening is None:
            left |= set(roster.silos)
        return [roster.name(index) for index in sorted(left)]

    def _tell(self) -> None:
        """Where it stands, for `hubbub status`."""
        collector, roster = self.box.collector, self.requests.roster
        come = [roster.name(silo) for silo in sorted(collector.deposits)]
        told = {
            "state": WAITING,
            "study": self.study,
            "phase": self.phase,
            "open_until": day_of(self.until),
            "deposits": len(come),
            "quorum": self._quorum,
            "come": come,
            "waiting_for": self.missing,
        }
        if any(self.requests.event_log.current(key) != value for key, value in told.items()):
            self.requests.event_log.state(**told)

    @property
    def phase(self) -> str:
        """What it waits for, in a few words."""
        collector = self.box.collector
        if collector.opening is None:
            return "nodes' keys"
        if not collector.fixed:
            return "deposits"
        return "nodes' totals" if collector.all_promised else "nodes' promises"

    def _remind(self) -> None:
        """Remind of who is missing, now and then."""
        if self.wall() >= self._remind_at:
            self._remind_at = next_reminder(self.wall(), self.until)
            missing = ", ".join(self.missing) or "nobody"
            until = day_of(self.until)
            self.requests.warn("reminder", study=self.study, until=until, missing=missing)
