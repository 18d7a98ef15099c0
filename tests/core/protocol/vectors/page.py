"""What frames.md, a page of the site, shows of the vectors between markers: hex, derived values.

A frame has its bytes on the left and their meaning on the right; long fields show both ends. The
first frames are whole; the others leave out what is the same there.
"""

from __future__ import annotations

import re
import struct
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubbub.core.protocol.primitives.wire import EVERYBODY, HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.session.ask import Call

PAGES = (Path(__file__).parent / "frames.md",)
_SIMPLE = {
    Tag.COMMIT: "commitment of silo 1",
    Tag.ROLL: "silos 1, 2 and 3: 1110 0000",
    Tag.NONCE: "nonce of silo 1",
    Tag.REVEAL: "silo 1's share of the joint seed",
    Tag.CONFIRM: "transcript",
    Tag.KEY_CHECK: "key check of 1 for 2",
    Tag.SHARE: "5 residues and their tag, sealed",
    Tag.SEED_ANCHOR: "link 0 of silo 1",
    Tag.SEED_LINK: "link 14 of silo 1: (7 - 1) 2 + 1 + 1",
    Tag.MIX_KEY: "public key of silo 1 for this list",
    Tag.MIX_OPENED: "private key of silo 1 for this list",
    Tag.SET_PROMISE: "digest of the SET",
    Tag.RESULT_SIGNED: "H(payload of the RESULT)",
}
_NAMED = dict.fromkeys(
    (Tag.ARRIVED, Tag.REQUEST, Tag.PROMISE), ("silos 1, 2 and 3: 1110 0000", "digest of the MODEL")
)
_NAMED[Tag.HELD] = ("silo 3: 0010 0000", "digest of the three SHAREs")
_STATEMENT = 185
_NAMED[Tag.LOOKED] = ("no silo: 0000 0000", "digest of the two DEPOSITs")
_JSON = (
    *(Tag.PROPOSAL, Tag.PROPOSED, Tag.OPEN, Tag.READY, Tag.REFUSAL, Tag.CLOSE, Tag.CLOSED),
    *(Tag.COLLECT, Tag.RECEIPT),
)
_WIDTH = 62  # of a line of JSON
_WHOLE = (Tag.COMMIT, Tag.MIX_KEY)
_SET_UP = bytes(8)  # round 0, attempt 0


def page(text: str, files: Mapping[str, Any]) -> str:
    """The page, what stands between its markers replaced."""
    for name, block in blocks(files).items():
        marked = f"<!-- {name} -->\n```text\n{block}\n```\n<!-- end -->"
        pattern = f"<!-- {name} -->\n.*?<!-- end -->"
        text = re.sub(pattern, lambda _, marked=marked: marked, text, flags=re.DOTALL)
    return text


def blocks(files: Mapping[str, Any]) -> dict[str, str]:
    """What stands between the markers, by name."""
    frames = {
        f"frame {name}": annotated(bytes.fromhex(frame)) for name, frame in files["frames"].items()
    }
    values = {"derived": derived(files["pairwise"]), "masks": streams(files["masks"])}
    values |= {"draws": draws(files["joint"]), "context": files["network"]["context"]}
    parcels = {
        f"parcel {name}": opened(bytes.fromhex(parcel))
        for name, parcel in files["network"]["parcels"].items()
    }
    return frames | values | parcels


def annotated(frame: bytes) -> str:
    """A frame, one line for a field; a study id and a session of zeros are shown everywhere."""
    version, tag, study, where, number, attempt, sender, receiver, size = struct.unpack(
        "<BB32s16sIIIIQ", frame[:HEADER_BYTES]
    )
    everybody = "everybody" if receiver == EVERYBODY else f"party {receiver}"
    context = [(study, "study id"), (where, "session")]
    time = [(frame[50:58], f"round {number}, attempt {attempt}")]
    whole = Tag(tag) in _WHOLE
    fields = [
        (frame[0:2], f"version {version}, tag {tag}: {Tag(tag).name}"),
        *(context if whole or not any(study) else []),
        *(time if whole or frame[50:58] != _SET_UP else []),
        (frame[58:66], f"from party {sender} to {everybody}"),
        (frame[66:74], f"payload: {size} bytes"),
        *_payload(Tag(tag), frame[HEADER_BYTES:-SIGNATURE_BYTES]),
        *([(frame[-SIGNATURE_BYTES:], "signature")] if whole else []),
    ]
    return _lines(fields)


def _lines(fields: Sequence[tuple[bytes, str]]) -> str:
    return "\n".join(f"{_short(data):<38}{meaning}".rstrip() for data, meaning in fields)


def opened(parcel: bytes) -> str:
    """An envelope, one line for a field; the frames in it are shown elsewhere."""
    asks = parcel[:4] == b"hub?"
    fields = [(parcel[:4], f'"{parcel[:4].decode()}": {"a request" if asks else "an answer"}')]
    fields.append((parcel[4:5], f"wire version {parcel[4]}"))
    if asks:
        fields.append((parcel[5:6], f"call {parcel[5]}: {Call(parcel[5]).name}"))
        fields.append((parcel[6:22], "session"))
    place = 22 if asks else 5
    while place < len(parcel):
        size = int.from_bytes(parcel[place : place + 8], "little")
        frame = parcel[place + 8 : place + 8 + size]
        fields.append((parcel[place : place + 8], f"a part of {size} bytes"))
        fields.append((frame, f"{Tag(frame[1]).name}, a whole frame"))
        place += 8 + size
    return _lines(fields)


def derived(v: Mapping[str, Any]) -> str:
    """The values on the way of silos 1 and 2, in full."""
    lines = {
        "roster digest": v["roster_digest"],
        "joint seed": v["seed"],
        "from 1 to 2": v["contributed"]["1"]["2"],
        "from 2 to 1": v["contributed"]["2"]["1"],
        "pair secret": v["secrets"]["1-2"],
        "silo 1 sent": v["digests"][64:128],
        "transcript": v["transcript"],
        "model digest": v["round"]["model_digest"],
        "silo 1 hides": ", ".join(str(value) for value in v["round"]["values"]["1"]),
        "sum": ", ".join(str(value) for value in v["round"]["sum"]),
    }
    return "\n".join(f"{name:<16}{value}" for name, value in lines.items())


def draws(v: Mapping[str, Any]) -> str:
    """What follows from the links of a projected round."""
    turn, signs, normals = v["round"], v["matrices"]["sign"], v["matrices"]["gaussian"]
    first = normals["rows"]["0"]
    lines = {
        "anchors digest": v["anchors_digest"],
        "transcript": v["transcript"],
        "model digest": turn["model_digest"],
        "attempt seed": turn["seed"],
        "key, 8 to 5": f"{turn['draw_key']} (sign)",
        "sum": ", ".join(str(value) for value in turn["sum"]),
        "key, 40 to 25": f"{signs['key']} (sign)",
        "row 0 by sqrt k": "".join("+-"[entry < 0] for entry in signs["rows"]["0"]),
        "key, 8195 to 3": f"{normals['key']} (gaussian)",
        "row 0 by 2^20": f"{', '.join(str(entry) for entry in first)}, each by sqrt k",
        "batch": ", ".join(map(str, v["batches"]["without_replacement"][0]["places"])),
    }
    return "\n".join(f"{name:<16}{value}" for name, value in lines.items())


def streams(masks: list[Mapping[str, Any]]) -> str:
    """The longest mask stream of every word size."""
    longest = max(mask["length"] for mask in masks)
    parts = []
    for mask in masks:
        if mask["length"] == longest:
            parts += [
                f"key {mask['key']}, {mask['word_bits']}-bit words, {longest} of them",
                f"  first   {', '.join(mask['first'][:3])}",
                f"  last    {', '.join(mask['last'][-3:])}",
                f"  sha256  {mask['sha256']}",
            ]
    return "\n".join(parts)


def _payload(tag: Tag, data: bytes) -> list[tuple[bytes, str]]:
    """The parts of a payload."""
    if tag is Tag.MODEL:
        numbers = [(data[i : i + 4], str(*struct.unpack_from("<f", data, i))) for i in (1, 5)]
        return [(data[:1], "active silos 1, 2 and 3: 1110 0000"), *numbers]
    if tag is Tag.CONTRIBUTION:
        parts = (data[:1088], "ML-KEM-768 ciphertext, 1088"), (data[1088:1120], "X25519 key, 32")
        return [*parts, (data[1120:], "contribution and its tag, 32 + 16")]
    if tag in (Tag.MIX_COMMIT, Tag.MIX_SEEN, Tag.MIX_COMPLAINT):
        return _statements(tag, data)
    if tag in (Tag.MIX_NAMES, Tag.MIX_FORMS):
        what, half = ("name", "form")[tag is Tag.MIX_FORMS], len(data) // 2
        return [(data[:half], f"{what} 0, {half}"), (data[half:], f"{what} 1, {half}")]
    if tag in _JSON:
        return _text(data)
    if tag is Tag.RESULT:
        return [(data[i : i + 4], str(*struct.unpack_from("<f", data, i))) for i in (0, 4)]
    if tag is Tag.EVIDENCE:
        head = (data[:1], "format 1"), (data[1:17], "platform: software")
        sizes = (data[17:21], "quote of 40 bytes"), (data[21:25], "no collateral")
        return [*head, *sizes, (data[25:], "quote")]
    if tag in _NAMED:
        whose, digest = _NAMED[tag]
        return [(data[:1], whose), (data[1:], digest)]
    if tag in _PARTED:
        return _PARTED[tag](tag, data)
    return [(data, _SIMPLE[tag])]


def _residues(tag: Tag, data: bytes) -> list[tuple[bytes, str]]:
    """Numbers of four bytes, and what follows them."""
    followed = {Tag.MASKED: "digest of the MODEL", Tag.SET_TOTAL: "digest of the SET"}
    size = len(data) - 32 if tag in followed else len(data)
    residues = [(data[i : i + 4], f"residue {i // 4}") for i in range(0, size, 4)]
    return residues + [(data[size:], followed[tag]) for _ in range(tag in followed)]


def _collected(tag: Tag, data: bytes) -> list[tuple[bytes, str]]:
    """The parts of a payload of a collection."""
    if tag is Tag.NODE_KEY:
        halves = (data[32:1216], "ML-KEM-768 key, 1184"), (data[1216:], "X25519 key, 32")
        return [(data[:32], "digest of the COLLECT"), *halves]
    if tag is Tag.DEPOSIT:
        seeds = [(data[i : i + 1168], "a sealed seed, 1168") for i in (64, 1232)]
        return [(data[:32], "Q"), (data[32:64], "hash of the vector"), *seeds]
    digests = [(data[i : i + 32], "digest of a DEPOSIT") for i in (33, 65)]
    return [(data[:32], "Q"), (data[32:33], "silos 1 and 3: 1010 0000"), *digests]


_PARTED = {
    **dict.fromkeys((Tag.MASKED, Tag.TOTAL, Tag.VECTOR, Tag.SET_TOTAL), _residues),
    **dict.fromkeys((Tag.NODE_KEY, Tag.DEPOSIT, Tag.SET), _collected),
}


def _text(data: bytes) -> list[tuple[bytes, str]]:
    """JSON, whose strings of many digits show both ends."""
    whole = re.sub(r'"([0-9a-f]{12})[0-9a-f]{8,}([0-9a-f]{12})"', r'"\1…\2"', data.decode())
    lines = textwrap.wrap(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [(data, lines[0]), *((b"", line) for line in lines[1:])]


def _statements(tag: Tag, data: bytes) -> list[tuple[bytes, str]]:
    """What was signed, and the signature, of other frames."""
    if tag is Tag.MIX_COMMIT:
        return [(data[:32], "commitment of silo 1"), *_signed(Tag.MIX_KEY, data[32:])]
    return _signed(Tag.MIX_NAMES, data)


def _signed(tag: Tag, data: bytes) -> list[tuple[bytes, str]]:
    places = range(0, len(data), _STATEMENT)
    numbered = [data[at : at + _STATEMENT] for at in places]
    return [(one, f"statement of the {tag.name} of party {one[73]}, 185") for one in numbered]


def _short(data: bytes) -> str:
    """Hex, or both ends of it."""
    grouped = data.hex(" ") if len(data) < 4 else data.hex(" ", -4)
    return grouped if len(data) <= 8 else f"{data[:6].hex()} … {data[-6:].hex()}"
