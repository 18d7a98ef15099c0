"""Flower without Flower: its messages, its apps and its grid, as far as hubbub touches them.

A grid here may be as malicious as a real one: it changes what it likes. Parties are behind their
doors, each on a thread. `tests/flower` sees the same with Flower itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.flower import _bytes_in, _packed, client_app
from hubbub.site.network.envelope import read_request
from hubbub.site.network.local_line import LocalLine
from network.relay import Change, Watched, honest


class _Records(dict[str, Any]):
    """A RecordDict, of arrays alone."""

    @property
    def array_records(self) -> dict[str, Any]:
        return self


class _Message:
    """A Message, between the server and a node."""

    def __init__(
        self,
        content: Any,
        dst_node_id: int = 0,
        message_type: str = "",
        *,
        ttl: float = 0.0,
        reply_to: Any = None,
    ) -> None:
        source = reply_to.metadata.dst_node_id if reply_to else 0
        self.content, self.metadata = (
            content,
            SimpleNamespace(
                src_node_id=source, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl
            ),
        )

    def has_error(self) -> bool:
        return False


class _App:
    """A ServerApp or a ClientApp, of one function."""

    def main(self) -> Callable[[Any], None]:
        return lambda function: setattr(self, "function", function)

    def query(self, _action: str) -> Callable[[Any], None]:
        return self.main()

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


def install(patch: pytest.MonkeyPatch) -> None:
    """Have `import flwr` find this."""
    names = {"RecordDict": _Records, "ArrayRecord": dict, "Array": SimpleNamespace}
    for module, content in {
        "flwr": {},
        "flwr.app": {**names, "Message": _Message},
        "flwr.clientapp": {"ClientApp": _App},
        "flwr.serverapp": {"ServerApp": _App},
    }.items():
        made = ModuleType(module)
        made.__dict__.update(content)
        patch.setitem(sys.modules, module, made)


@dataclass
class MadeUpGrid:
    """A grid whose nodes are a ClientApp each, and which hands on what it likes.

    Args:
        homes: by node id what the ClientApp there is given.
        asks, tells: what becomes of requests and of answers, by call and party.
        tape: the name of the call, of the home, and the request, as it was sent.
    """

    homes: dict[int, Path]
    asks: Change = honest
    tells: Change = honest
    tape: list[tuple[str, str, bytes]] = field(default_factory=list)

    def get_node_ids(self) -> Iterable[int]:
        return self.homes.keys()

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> Iterable[Any]:
        app = client_app(lambda context: self.homes[context.node_id])
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            name = self.homes[node].parent.name
            sent = self.asks(_call_in(message), name, _bytes_in(message))
            self.tape.append((_call_in(message), name, sent))
            message.content = _packed(sent)
            reply = app(message, SimpleNamespace(node_id=node))
            told = self.tells(_call_in(message), name, _bytes_in(reply))
            if told is not None:
                reply.content = _packed(told)
                replies.append(reply)
        return replies


def _call_in(message: Any) -> str:
    with suppress(ProtocolError):
        return read_request(_bytes_in(message))[0].name.lower()
    return "who"


@contextmanager
def doors(
    parties: Watched, answers: Mapping[str, Callable[[bytes], bytes]] | None = None
) -> Iterator[Mapping[int, Path]]:
    """The doors of all that are watched, by the ids of nodes that hand in there.

    Args:
        parties: whose they are.
        answers: by name, of those who are there; what the parties themselves answer if None.
    """
    named = {name: parties.answers(name) for name in parties.seats} if answers is None else answers
    ended = threading.Event()

    def answer_at(path: Path, name: str) -> None:
        line = LocalLine(
            path,
            parties.sites[name],
            named[name],
            lambda: parties.seats[name].largest_request if answers is None else 1 << 30,
        )
        with line:
            ready.release()
            while not ended.is_set():
                line.step(0.05)

    ready = threading.Semaphore(0)
    with ExitStack() as stack:
        paths = {}
        for name in named:
            paths[1000 + parties.sites[name].index] = path = parties.home / name / "line.sock"
            thread = threading.Thread(target=answer_at, args=(path, name))
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        for _ in paths:
            assert ready.acquire(timeout=300)
        yield paths
