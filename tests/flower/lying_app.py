"""The example's app behind a SuperLink that lies, or that carries what `check_transport` says.

`Flower.lies` copies it over the example's own; the file `lie` in the parties' folder says which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp

from hubbub.core.errors import ProtocolError
from hubbub.flower import GridPhase, _bytes_in, _packed, client_app, server_app
from hubbub.site.network.envelope import Phase, read_request
from hubbub.site.network.local_line import LocalLine
from hubbub.site.network.party_folder import PartyFolder
from hubbub.testing import check_transport

HOMES = Path.home() / "hospitals"
NAMES = ("cleveland", "hungary", "switzerland", "va-long-beach")
LIE = HOMES / "lie"
DOORS = Path.home() / "doors"


LIES = {2: "changed", 4: "old", 6: "old answer", 8: "swapped"}  # by the number of a phase of models


class Lying:
    """Flower's grid, but for what it does to the model of its first node, or to the answer.

    Args:
        grid: Flower's own.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._asked: list[bytes] = []
        self._told: dict[int, Any] = {}  # by node its first answer

    def get_node_ids(self) -> Iterable[int]:
        return list(self._grid.get_node_ids())

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None) -> list[Any]:
        sent = sorted(messages, key=lambda message: int(message.metadata.dst_node_id))
        if not sent or _call_in(sent[0]) != "model":
            return list(self._grid.send_and_receive(sent, timeout=timeout))
        blob = _bytes_in(sent[0])
        self._asked.append(blob)
        lie = LIES.get(len(self._asked))
        if lie == "changed":
            blob = blob[:-20] + bytes([blob[-20] ^ 1]) + blob[-19:]
        if lie == "old":
            blob = self._asked[0]
        sent[0].content = _packed(blob)
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        replies.sort(key=lambda reply: int(reply.metadata.src_node_id))
        for reply in replies:
            self._told.setdefault(reply.metadata.src_node_id, reply.content)
        if lie == "old answer":
            replies[0].content = self._told[replies[0].metadata.src_node_id]
        if lie == "swapped":
            replies[0].content, replies[1].content = replies[1].content, replies[0].content
        return replies


def _call_in(message: Any) -> str:
    with suppress(ProtocolError):
        return read_request(_bytes_in(message))[0].name.lower()
    return "who"


@contextmanager
def connected(grid: Any, answers: Mapping[str, Callable[[bytes], bytes]]) -> Iterator[Phase]:
    """Parties that answer at doors of their own, in this process."""
    folders = {name: PartyFolder.opened(HOMES / name) for name in NAMES}
    ended = threading.Event()

    def serve(line: LocalLine) -> None:
        with suppress(OSError):  # the line is closed
            while not ended.is_set():
                line.step(0.1)

    with ExitStack() as stack:
        for name, answer in answers.items():
            line = LocalLine(DOORS / name, folders[name], answer, lambda: 1 << 30)
            thread = threading.Thread(target=serve, args=(stack.enter_context(line),), daemon=True)
            thread.start()
        phase = GridPhase(grid, folders[NAMES[0]].roster)
        list(phase("ping", {}, 60.0))
        stack.callback(ended.set)
        yield phase


def main(grid: Any, context: Any) -> None:
    if LIE.read_text() == "transport":
        check_transport(lambda answers: connected(grid, answers), NAMES, deadline=45.0)
        (DOORS / "held").touch()
    else:
        study = HOMES / LIE.read_text()
        server_app(study, home=HOMES / "aggregator", waiting=1.0)(Lying(grid), context)


def there(context: Any) -> Path:
    name = NAMES[context.node_config["partition-id"]]
    return DOORS / name if LIE.read_text() == "transport" else HOMES / name


client = client_app(there)
server = ServerApp()
server.main()(main)
