"""What a run must know of itself to go on after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hubbub.core.disk import json_value, read_bytes
from hubbub.core.errors import IntegrityError
from hubbub.core.protocol.agreement.key_agreement import SESSION_BYTES

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """What a run must know of itself to go on after a crash: `run.json`.

    Args:
        study: the study id, hexadecimal.
        baseline: which one, or None for hubbub.
        ledgers: the folder of the silos' ledgers; empty where each silo keeps its own elsewhere.
        sessions: the sessions that were opened, by what was summed in them.
        heads: of the silos' ledgers before anything was charged, hexadecimal; none before that.
    """

    study: str
    baseline: str | None
    ledgers: str
    sessions: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [one for opened in self.sessions.values() for one in opened]
        Path(self.ledgers)  # TypeError unless it is a text
        if (
            not all(len(bytes.fromhex(hex_id)) == SESSION_BYTES for hex_id in ids)
            or not all(len(bytes.fromhex(head)) == 32 for head in self.heads.values())
            or (ids and self.ledgers and self.baseline is None and not self.heads)
        ):
            raise ValueError("notes of something else")

    def to_json(self) -> str:
        """What `read_metadata` reads."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2)


def read_metadata(path: Path) -> RunMetadata:
    """What `run.json` says.

    Raises:
        IntegrityError: it is not as this version writes it.
    """
    try:
        said = json_value(read_bytes(path))
        if said.pop("format") != _FORMAT:
            raise ValueError
        sessions = {purpose: tuple(opened) for purpose, opened in said.pop("sessions").items()}
        return RunMetadata(**said, sessions=sessions)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it, or use "
            "the version of hubbub that wrote it"
        ) from None
