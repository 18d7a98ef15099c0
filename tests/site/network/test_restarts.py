"""The server is killed when the first envelope of each kind has passed, in every phase there is.

The request has reached a party; its answer does not find the server that brought it. Nothing is
lost and nothing asked anew: each silo charges each attempt once, and the run ends as it would have.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.session.ask import Call
from hubbub.site.network.envelope import read_request
from hubbub.site.network.nats.server import PROCESS_ID
from network.lines import over_nats, wait
from network.relay import HASTY, NAMES, Watched, tiny
from network.test_lists import (
    Complaining,
    Ward,
    cheap_plans,  # noqa: F401 (a fixture)
    cheating,
    joint,
)

pytest.importorskip("nats", reason="needs the extra net")

SET_UP = {Call.PING, Call.OPEN, Call.CONTRIBUTE, Call.CONFIRM, Call.FINISH}
MASKS = SET_UP | {Call.COMMIT, Call.REVEAL}
LISTS = {Call.LIST, Call.WRAP, Call.SHOW, Call.LOOK, Call.MIX}
END = {Call.MODEL, Call.CLOSE}


class Struck:
    """Kills the server of a folder as the first request of each kind is answered."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self.calls: set[Call] = set()

    def around(self, answers: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def answered(blob: bytes) -> bytes:
            call = read_request(blob)[0]
            with self._lock:
                first = call not in self.calls
                self.calls.add(call)
                if first:
                    self._kill()
            return answers(blob)

        return answered

    def _kill(self) -> None:
        """End it, and see that it has ended: it is started again at once."""
        process = int((self._folder / PROCESS_ID).read_text())
        os.kill(process, signal.SIGKILL)
        wait(lambda: not _runs(process))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def restarted(folder: Path, parties: Watched) -> tuple[Struck, Callable[[], Any]]:
    """Who strikes, and the run."""
    relay = folder / "relay"
    relay.mkdir()
    struck, answers = Struck(relay), parties.answers
    parties.answers = lambda name: struck.around(answers(name))  # type: ignore[method-assign]

    def run() -> Any:
        with over_nats(relay, parties) as (carrier, _):
            return parties.serve(carrier.phase, timeouts=HASTY)

    return struck, run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "changes", "calls"),
    [
        (0, {}, MASKS | END),
        (2, {}, SET_UP | END | {Call.PROMISE, Call.TOTAL}),
        (
            2,
            {"parties": {"shares": "full"}},
            SET_UP | END | {Call.PROMISE, Call.TOTAL, Call.SHARES},
        ),
    ],
    ids=["pairwise", "nodes", "full-shares"],
)
def test_a_server_restarted_in_every_phase_costs_nothing(
    tmp_path: Path, nodes: int, changes: dict[str, Any], calls: set[Call]
) -> None:
    parties = Watched.gather(tmp_path, tiny(nodes, **changes))
    struck, run = restarted(tmp_path, parties)
    assert run().final["step"] == 4
    assert struck.calls == calls
    assert parties.broken == []
    assert [len(parties.rows(name)) for name in NAMES] == [4, 4, 4]


@pytest.mark.slow
def test_a_server_restarted_in_every_phase_of_a_token_list_costs_nothing(tmp_path: Path) -> None:
    parties = Ward.gather(tmp_path, joint("static", training={"steps": 2}))
    struck, run = restarted(tmp_path, parties)
    assert run().final["step"] == 2
    assert struck.calls == MASKS | LISTS | END | {Call.SEED, Call.TAKE}
    assert parties.broken == []
    assert [len(parties.rows(name)) for name in NAMES] == [1, 1, 1]  # one row for the epoch


@pytest.mark.slow
def test_a_server_restarted_while_a_cheat_is_judged_does_not_save_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheating(monkeypatch, Complaining)
    parties = Ward.gather(tmp_path, joint("static"))
    struck, run = restarted(tmp_path, parties)
    with pytest.raises(ProtocolError) as caught:
        run()
    assert caught.value.culprit == "bob"
    assert {Call.GIVE_UP, Call.JUDGE} < struck.calls
    found = [line for line in parties.said if "bob: expected a list that everybody made" in line]
    assert len(found) == len(NAMES)
