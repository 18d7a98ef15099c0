"""What a party's administrator has set on this machine: where its folder, records and ledger are.

The file is written where the engine keeps a site's own configuration. No job, no study and no
message can change it; a value that is not known is refused.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from hubbub.errors import UserError
from hubbub.network.event_log import EventLog, Say
from hubbub.network.party_folder import PartyFolder
from hubbub.network.timeouts import PACE, Timeouts

if TYPE_CHECKING:
    from hubbub.network.endpoint import Endpoint

FILE = "hubbub.toml"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One party on one machine.

    Args:
        home: the party's folder.
        data: the folder that a study's file names are relative to; the home if empty.
        ledger: of the silo's data set; in the home if empty.
        device: where gradients are made.
        pace: seconds; a silo's answer leaves at a multiple of it.
        allow_byoc: whether this party takes part although its site lets jobs bring code.
        deadline, opening, waiting, ask_again: see `Patience`; the aggregator's alone.
    """

    home: str
    data: str = ""
    ledger: str = ""
    device: str = "auto"
    pace: float = PACE
    allow_byoc: bool = False
    deadline: float = Timeouts.deadline
    opening: float = Timeouts.opening
    waiting: float = Timeouts.waiting
    ask_again: float = Timeouts.ask_again

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """The settings in a folder.

        Raises:
            UserError: there are none, or others than these.
        """
        path = folder / FILE
        try:
            said = tomllib.loads(path.read_text(encoding="utf-8"))
            unknown = sorted(set(said) - {field.name for field in fields(cls)})
            if unknown:
                raise ValueError(f"the unknown key {unknown[0]}")
            found = cls(**said)
            found._check()
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"expected this party's settings in {path}, found {error}; write them with hubbub "
                "join or hubbub serve"
            ) from None
        return found

    @classmethod
    def changed(cls, folder: Path, home: Path, **given: Any) -> Settings:
        """What a folder's settings say of a home, or the defaults, with what is given now."""
        wanted = {name: value for name, value in given.items() if value is not None}
        kept = cls(home=str(home))
        if (folder / FILE).is_file() and (found := cls.read(folder)).home == kept.home:
            kept = found
        return replace(kept, **wanted)

    def _check(self) -> None:
        """Every value has the type of its default."""
        for name, value in asdict(self).items():
            wanted = (int, float) if name in _NUMBERS else (bool if name == "allow_byoc" else str,)
            if not isinstance(value, wanted) or isinstance(value, bool) != (bool in wanted):
                raise TypeError(f"{name} = {value!r}")

    def write(self, folder: Path) -> None:
        """Put the settings into a folder."""
        (folder / FILE).write_text(tomli_w.dumps(asdict(self)), encoding="utf-8")

    @property
    def site(self) -> PartyFolder:
        """The party's folder, checked."""
        return PartyFolder.opened(Path(self.home))

    @property
    def timeouts(self) -> Timeouts:
        """How long the aggregator waits."""
        return Timeouts(
            deadline=self.deadline,
            opening=self.opening,
            waiting=self.waiting,
            ask_again=self.ask_again,
        )

    def event_log(self, say: Say = lambda _: None) -> EventLog:
        """Where this party's events go."""
        return EventLog(party=self.site.name, folder=Path(self.home), say=say)

    def endpoint(self, event_log: EventLog) -> Endpoint:
        """A silo's or a compute node's endpoint.

        Raises:
            UserError: the folder is the aggregator's.
        """
        site = self.site
        if site.role == "node":
            from hubbub.network.node_endpoint import NodeEndpoint

            return NodeEndpoint(site, event_log)
        if site.role != "silo":
            raise UserError(f"expected a silo or a compute node in {self.home}, got the aggregator")
        from hubbub.network.silo_endpoint import SiloEndpoint

        return SiloEndpoint(
            site,
            event_log,
            data=Path(self.data or self.home),
            ledger=Path(self.ledger or site.home / "ledger.sqlite"),
            device=self.device,
            pace=self.pace,
        )


_NUMBERS: Any = frozenset({"pace", "deadline", "opening", "waiting", "ask_again"})
