"""Vectors of parties that run apart: what opens and closes a session, and envelopes around frames.

Nothing here draws randomness; the ledger that CLOSED speaks of is made up.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import SessionOffer, context_of
from hubbub.core.verification.evidence.collecting import part_of
from hubbub.site.network.envelope import NO_SESSION, answer, request
from protocol.parties import SESSION, STUDY, World

VERSION = "0.1.0"  # of hubbub, as the parties of the vectors say; the wire has its own
LEDGER = {"ledger_head": bytes(range(32)), "ledger_rows": 61, "attempts": 60}
RESULT = struct.pack("<2f", 0.5, -1.25)
PROPOSED = b'[study]\nname = "heart"\n'
QUOTE = bytes(range(40))  # made up
EVIDENCE = struct.pack("<B16sII", 1, b"software", len(QUOTE), 0) + QUOTE
UNTIL = 1798070400
NOWHERE = {"study": bytes(32), "session": NO_SESSION}


def network(w: World, model: bytes) -> dict[str, Any]:
    """The file: one frame of each tag, the offer's place in a transcript, and envelopes."""
    opening = SessionOffer(
        purpose="training", round_parameters=w.round_parameters.to_dict(), version=VERSION
    )
    ready = {"version": VERSION, "attempts": {"training": 0}}
    said = part_of(w.keys[1], study=STUDY, sessions=[SESSION], **LEDGER)
    asked = request(Call.MODEL, SESSION, [model])
    refusal = {"why": "budget", "culprit": "", "to": hashlib.sha256(asked).hexdigest()}
    frames = {
        "OPEN": w.forge(0, Tag.OPEN, opening.payload()),
        "READY": w.forge(1, Tag.READY, _json(ready), receiver=0),
        "NONCE": w.forge(1, Tag.NONCE, hashlib.sha256(b"nonce of silo 1").digest()),
        "EVIDENCE": w.forge(0, Tag.EVIDENCE, EVIDENCE),
        "REFUSAL": w.forge(1, Tag.REFUSAL, _json(refusal), receiver=0, **NOWHERE),
        "RESULT": w.forge(0, Tag.RESULT, RESULT),
        "RESULT_SIGNED": w.forge(1, Tag.RESULT_SIGNED, hashlib.sha256(RESULT).digest()),
        "PROPOSAL": w.forge(0, Tag.PROPOSAL, PROPOSED),
        "PROPOSED": w.forge(1, Tag.PROPOSED, _json({"state": "pending", "reason": ""}), receiver=0),
        "CLOSE": w.forge(0, Tag.CLOSE, _json({"sessions": [SESSION.hex()]})),
        "CLOSED": w.forge(1, Tag.CLOSED, _json(said), receiver=0),
    }
    parcels = {
        "ping": request(Call.PING, SESSION),
        "model": asked,
        "ready": answer([frames["READY"]]),
        "finished": answer(),
    }
    return {
        "frames": {name: frame.hex() for name, frame in frames.items()},
        "collect": w.forge(0, Tag.COLLECT, _collect(opening)).hex(),
        "context": context_of(opening.payload(), w.rolled()[1].digest, b"").hex(),
        "parcels": {name: parcel.hex() for name, parcel in parcels.items()},
    }


def _collect(opening: SessionOffer) -> bytes:
    """The words of a collection that is open until Christmas Eve of 2026."""
    said = json.loads(opening.payload()) | {"until": UNTIL}
    return json.dumps(said, sort_keys=True).encode()


def _json(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode()
