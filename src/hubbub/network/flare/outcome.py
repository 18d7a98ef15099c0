"""How a study ended at the aggregator, left on disk by the worker for whoever supervises it."""

from __future__ import annotations

import json
from pathlib import Path

from hubbub.disk import write_bytes
from hubbub.errors import ProtocolError, UserError

OUTCOME = "outcome.json"


def run_folder(home: Path, study: str) -> Path:
    """Where the aggregator keeps the run of a study, by its hexadecimal id."""
    return home / "runs" / study[:16]


def leave_word(home: Path, study: str, error: Exception | None) -> None:
    """Say how the run ended: with an error, or well."""
    said = {
        "study": study,
        "done": error is None,
        "said": str(error or ""),
        "culprit": error.culprit if isinstance(error, ProtocolError) else "",
        "bad_input": isinstance(error, UserError),
    }
    write_bytes(home / OUTCOME, json.dumps(said).encode())
