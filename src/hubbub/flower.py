"""hubbub in Flower: its grid carries the frames between the parties, and does nothing else.

Flower's `Grid` is a `Phase` (`hubbub.site.network.envelope`), its `ClientApp` hands bytes in at the
door of a party (`hubbub.site.network.local_line`). Keys, roster, ledger, refusals and evidence are
hubbub's. A SuperNode runs code that its SuperLink sends: what must not trust a SuperLink runs as
another user (docs/howto/flower.md). Needs the extra `flower`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import HubbubError, ProtocolError, UserError, with_extra
from hubbub.site.network.local_line import SOCKET, handed_in, name_in, new_nonce, who

if TYPE_CHECKING:  # Flower starts a process for each message: it reads no more than it needs
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from hubbub.core.protocol.primitives.identity import Roster
    from hubbub.core.study.study import Study
    from hubbub.site.network.envelope import Missing

__all__ = ["client_app", "server_app"]

_KIND = "query.hubbub"  # of Flower's messages
_RECORD = "hubbub"
_GREETING = 120.0  # seconds in which a new node says who it is; its party may start meanwhile
_STARTING = 90.0  # seconds for a party's process to start
_LOG = logging.getLogger("flwr")  # Flower shows it


def server_app(
    study: Study | Path | str,
    *,
    home: Path | str = "hubbub-home",
    data: Path | str | None = None,
    deadline: float = 120.0,
    waiting: float = 3600.0,
) -> ServerApp:
    """A Flower ServerApp that is the aggregator of a study.

    Guarantees:
        1. The run is that of `hubbub serve`: the same folder, evidence and epsilon per adversary,
           and it goes on with the same folder after whatever has stopped it.
        2. Nothing rests on Flower: it can delay or lose what it carries, and not more.

    Args:
        study: its TOML file, approved in the aggregator's folder.
        home: the aggregator's folder.
        data: the folder that the public test set is in; the home if None.
        deadline: seconds for a phase, in which Flower starts a process at each party.
        waiting: seconds for who is missing.

    Raises:
        UserError: Flower is not installed. The app raises what `hubbub serve` says.
    """
    _check_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: Grid, _: Context) -> None:
        from hubbub.core.study.study import Study
        from hubbub.site.network.aggregator_process import check, played
        from hubbub.site.network.event_log import EventLog
        from hubbub.site.network.party_folder import PartyFolder, alone
        from hubbub.site.network.requests import Requests
        from hubbub.site.network.waiting import Timeouts

        party_folder = PartyFolder.opened(Path(home))
        asked = study if isinstance(study, Study) else Study.load(Path(study))
        folder = None if data is None else Path(data)
        check(party_folder, asked, folder)
        event_log = EventLog(party=party_folder.name, folder=party_folder.home, say=_LOG.info)
        # A sign of life takes a process too.
        timeouts = Timeouts(deadline=deadline, waiting=waiting, ping=min(60.0, deadline))
        with alone(party_folder.home), event_log.beating():
            roster = party_folder.roster
            phase = GridPhase(grid, roster)
            requests = Requests(roster, asked.id, phase, event_log, timeouts)
            out = played(party_folder, asked, requests, data=folder)
        _LOG.info("written to %s; check it with hubbub verify %s", out, out)

    app.main()(main)
    return app


class GridPhase:
    """Flower's grid as a `Phase`: a message to each party's node, and their replies.

    Which node speaks for a party is asked of the nodes themselves, and believed if the party has
    signed it: else one silo's node could take another's messages. More than messages it cannot
    take.
    """

    def __init__(self, grid: Grid, roster: Roster) -> None:
        self._grid, self._roster = grid, roster
        self._nodes: dict[str, int] = {}  # by party

    def __call__(
        self, name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        """See `Phase`."""
        from hubbub.site.network.envelope import Missing

        online = {*self._grid.get_node_ids()}
        if name in ("open", "ping"):  # whoever comes in between is not asked before
            self._greet(online - {*self._nodes.values()}, min(deadline, _GREETING))
        there = {p: node for p, node in self._nodes.items() if p in requests and node in online}
        yield from ((party, Missing(why=_AWAY)) for party in requests.keys() - there.keys())
        answers = self._sent({node: requests[p] for p, node in there.items()}, deadline)
        for party, node in there.items():
            answer = answers.get(node)
            yield party, Missing() if answer is None else answer or Missing(why=_FAILED)

    def _greet(self, nodes: set[int], deadline: float) -> None:
        """Learn whose nodes these are."""
        nonce = new_nonce()
        for node, answer in self._sent(dict.fromkeys(nodes, who(nonce)), deadline).items():
            with suppress(ProtocolError):
                self._nodes[name_in(answer, self._roster, nonce)] = node

    def _sent(self, blobs: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
        """What nodes reply in time; no bytes where its ClientApp failed."""
        from flwr.app import Message

        messages = [
            Message(_packed(blob), dst_node_id=node, message_type=_KIND, ttl=deadline)
            for node, blob in blobs.items()
        ]
        replies = self._grid.send_and_receive(messages, timeout=deadline) if messages else []
        return {reply.metadata.src_node_id: _bytes_in(reply) for reply in replies}


_AWAY = "no SuperNode of it is connected"
_FAILED = "its ClientApp cannot reach it, as the log of its SuperNode says"


def client_app(home: Path | str | Callable[[Context], Path | str]) -> ClientApp:
    """A Flower ClientApp that hands requests in at a party, and its answers back.

    It holds no key and reads no record; these are in the process of the party, which `hubbub join
    --socket` runs. Where none answers at a folder, one is started, as this user, and ends with the
    study.

    Guarantees:
        1. Nothing but the party's answers goes back to the server: no error, no time, no name.

    Args:
        home: the party's folder, or the socket of its process; or what gives it, from the node's
            context.

    Raises:
        UserError: Flower is not installed.
    """
    _check_flower()
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        answered = b""
        try:
            there = Path(home(context) if callable(home) else home)
            answered = _answer_of(there, _bytes_in(message), message.metadata.ttl)
        except Exception as error:  # noqa: BLE001 (Flower would send its sentence to the server)
            _LOG.error("hubbub: %s", error if isinstance(error, HubbubError) else repr(error))
        return Message(_packed(answered), reply_to=message)

    app.query("hubbub")(answer)
    return app


def _answer_of(there: Path, request: bytes, seconds: float) -> bytes:
    """What the party says at its folder or its socket, once it runs, while the server waits."""
    path = there / SOCKET if there.is_dir() else there
    with suppress(FileNotFoundError, ConnectionRefusedError):
        return handed_in(path, request, seconds)
    if path == there:
        raise UserError(f"expected a party at {path}, none answers; hubbub join --socket {path}")
    _start(there, path)
    return handed_in(path, request, seconds)


def _start(home: Path, path: Path) -> None:
    """Start a party's process, which outlives this one, and wait until it answers.

    Raises:
        HubbubError: it does not start.
    """
    command = [sys.executable, "-m", "hubbub", "join", "--home", home, "--socket", path, "--once"]
    log = home / "join.log"
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 (hubbub itself)
            [*map(str, command), "--patience", "3600"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    end, has_ended = time.monotonic() + _STARTING, False
    while time.monotonic() < end and not has_ended:
        has_ended = process.poll() is not None  # another start may have won: then that one answers
        with suppress(OSError):
            handed_in(path, who(new_nonce()), _STARTING)
            return
        time.sleep(0.2)
    raise HubbubError(f"expected the party in {home} to start, it did not; {log} says why")


def _packed(blob: bytes) -> RecordDict:
    """Bytes as Flower carries them; an array goes in pieces."""
    from flwr.app import Array, ArrayRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(blob),), stype="hubbub", data=blob)
    return RecordDict({_RECORD: ArrayRecord({_RECORD: array})})


def _bytes_in(message: Message) -> bytes:
    """The bytes of a message; none where it has none."""
    if message.has_error() or _RECORD not in message.content.array_records:
        return b""
    array: Any = message.content.array_records[_RECORD].get(_RECORD)
    return b"" if array is None else bytes(array.data)


def _check_flower() -> None:
    try:
        import flwr.app  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(f"expected Flower to be installed; {with_extra('flower')}") from None
