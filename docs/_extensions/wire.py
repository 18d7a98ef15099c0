"""The page of messages: every tag, call and refusal, with its number or word from the code.

`python docs/_extensions/wire.py` writes `docs/reference/wire.md` anew. What each carries stands
here; a tag or a call of the code that is not here is an error, and so is one that it has no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path

from hubbub.core.protocol.primitives.wire import OVERHEAD, VERSION, Tag
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import REASONS

PAGE = Path(__file__).parents[1] / "reference" / "wire.md"
_SILOS = r"$\lceil N/8\rceil$"  # a bitmap of silos
_ASKED = r"$\lceil N/8\rceil+32$"
_JOINT, _FULL = "with joint seeds only", "with full shares only"
# From, to, payload, bytes of the payload ("" where the lengths of its parts decide).
TAGS: dict[str, tuple[str, str, str, str]] = {
    "COMMIT": ("silo", "everybody", "commitment to a share of the joint seed", "32"),
    "REVEAL": ("silo", "everybody", "the share", "32"),
    "CONTRIBUTION": ("silo, node", "one neighbour", "sealed contribution", "1168"),
    "CONFIRM": ("silo, node", "everybody", "transcript", "32"),
    "KEY_CHECK": ("silo, node", "one neighbour", "key check", "32"),
    "MODEL": (
        "aggregator",
        "everybody",
        "active silos, model; between them the attempt's number, with correlated noise",
        r"$\lceil N/8\rceil+4p$ or $+2p$; 4 more",
    ),
    "MASKED": (
        "silo",
        "aggregator",
        "residues, digest of the MODEL",
        "$dw/8+32$; 32 with full shares",
    ),
    "REQUEST": ("aggregator", "one node", "silos to be summed, digest of the MODEL", _ASKED),
    "TOTAL": ("node", "aggregator", "residues", "$dw/8$"),
    "SHARE": ("silo", "one node", f"sealed residues, {_FULL}", "$dw/8+16$"),
    "SEED_ANCHOR": ("silo", "everybody", f"link 0 of its chain, {_JOINT}", "32"),
    "SEED_LINK": ("silo", "everybody", f"the attempt's link, {_JOINT}", "32"),
    "MIX_KEY": ("silo", "everybody", "an X25519 public key, made for this list only", "32"),
    "MIX_COMMIT": (
        "silo",
        "everybody",
        "commitment to own names, then the statements of all MIX_KEY",
        "",
    ),
    "MIX_NAMES": (
        "silo",
        "everybody",
        "step 0: own names in order, then the statements of all MIX_COMMIT; step *k*: all names",
        "",
    ),
    "MIX_FORMS": (
        "silo",
        "everybody",
        "the forms in the order of the names; where parties run apart, not in the last step",
        "",
    ),
    "MIX_SEEN": (
        "silo",
        "everybody",
        "the statements of this step's MIX_NAMES: all silos' at step 0, then the mixer's",
        "",
    ),
    "MIX_COMPLAINT": (
        "silo",
        "everybody",
        "the statements of the MIX_NAMES that the sender was shown last",
        "",
    ),
    "MIX_OPENED": ("silo", "everybody", "the private key of this list", "32"),
    "OPEN": (
        "aggregator",
        "everybody",
        "the session offer, JSON; OPEN to CLOSED exist only where parties run apart",
        "",
    ),
    "READY": (
        "silo, node",
        "aggregator",
        "version, attempts paid for, head of the ledger, `to` in collections; JSON",
        "",
    ),
    "REFUSAL": ("silo, node", "aggregator", "a reason, JSON", ""),
    "RESULT": ("aggregator", "everybody", "the trained model", "$4p$"),
    "CLOSE": ("aggregator", "everybody", "the sessions of the study, JSON", ""),
    "CLOSED": ("silo", "aggregator", "its part of the evidence, JSON", ""),
    "ARRIVED": (
        "aggregator",
        "one node",
        f"silos that answered, digest of the MODEL, {_FULL}",
        _ASKED,
    ),
    "HELD": (
        "node",
        "aggregator",
        "silos whose shares do not open, digest of all shares",
        _ASKED,
    ),
    "NONCE": (
        "silo; in collections aggregator",
        "everybody",
        "random bytes; in sessions, like EVIDENCE, only if the study requires "
        "[evidence](../attestation.md)",
        "32",
    ),
    "EVIDENCE": (
        "who must show some",
        "everybody",
        "platform, quote, collateral",
        "at most $2^{18}$",
    ),
    "PROMISE": ("node", "everybody", "silos to be summed, digest of the MODEL", _ASKED),
    "ROLL": ("aggregator", "everybody", "the session's silos", _SILOS),
    "RESULT_SIGNED": ("silo", "everybody", "H(payload of the RESULT)", "32"),
    "PROPOSAL": (
        "aggregator",
        "everybody",
        "a study's [text](../protocol.md#proposals)",
        "at most $2^{18}$",
    ),
    "PROPOSED": ("silo, node", "aggregator", "`state`, `reason`, JSON", ""),
    "COLLECT": (
        "aggregator",
        "everybody",
        "as OPEN, with `until`, seconds since 1970; JSON",
        "",
    ),
    "NODE_KEY": (
        "node",
        "everybody",
        "digest of the COLLECT, a sealing key for this collection alone",
        "32 + 1216",
    ),
    "DEPOSIT": (
        "silo",
        "everybody",
        "$Q$, H(payload of the VECTOR), a sealed seed for each node in their order",
        "64 + 1168 $M$",
    ),
    "VECTOR": ("silo", "everybody", "masked residues", "$dw/8$"),
    "LOOKED": (
        "node",
        "everybody",
        "silos whose seeds do not open, digest of what was shown",
        _ASKED,
    ),
    "SET": (
        "aggregator",
        "everybody",
        "$Q$, silos, the digest of each one's DEPOSIT, rising",
        r"$32+\lceil N/8\rceil+32n$",
    ),
    "SET_PROMISE": ("node", "everybody", "digest of the SET", "32"),
    "SET_TOTAL": ("node", "everybody", "residues, digest of the SET", "$dw/8+32$"),
    "RECEIPT": (
        "aggregator",
        "one party",
        "the state of the collection, digest of the party's DEPOSIT; JSON",
        "",
    ),
}
# To whom, the parts of the request, the parts of the answer.
CALLS: dict[str, tuple[str, str, str]] = {
    "PING": (
        "all",
        "",
        "none; or a READY without payload, if the set-up is complete and the session can go on",
    ),
    "OPEN": ("all", "OPEN", "READY, a silo's SEED_ANCHOR with joint seeds, its NONCE if required"),
    "COMMIT": ("silos", "ROLL, unless ATTEST brought it; all SEED_ANCHORs", "COMMIT"),
    "REVEAL": ("silos", "all COMMITs", "REVEAL"),
    "CONTRIBUTE": (
        "all",
        "all REVEALs; with nodes ROLL, unless ATTEST brought it, and all SEED_ANCHORs",
        "its CONTRIBUTIONs",
    ),
    "CONFIRM": (
        "all",
        "the digests of what all sent, then the CONTRIBUTIONs for the party",
        "CONFIRM, then its KEY_CHECKs",
    ),
    "FINISH": (
        "all",
        "the CONFIRMs that it waits for, the KEY_CHECKs for it",
        "none: the set-up is complete",
    ),
    "MODEL": ("silos", "MODEL", "MASKED and its SHAREs; with joint seeds its SEED_LINK"),
    "SEED": ("silos", "SEED_LINKs of all active silos", "MASKED"),
    "TOTAL": ("nodes", "the PROMISEs of all nodes", "TOTAL"),
    "CLOSE": ("silos", "CLOSE, RESULT", "CLOSED, READY"),
    "LIST": ("silos", "", "MIX_KEY"),
    "WRAP": ("silos", "all MIX_KEYs", "MIX_COMMIT"),
    "SHOW": ("silos", "all MIX_COMMITs", "MIX_NAMES, MIX_FORMS of step 0"),
    "LOOK": (
        "silos",
        "the MIX_SEENs of the step before, unless MIX brought them; then the MIX_NAMES: all "
        "silos' at step 0, then the mixer's",
        "MIX_SEEN; or MIX_SEEN, MIX_COMPLAINT",
    ),
    "MIX": (
        "one silo",
        "the MIX_SEENs and the MIX_FORMS of the step before",
        "MIX_NAMES, and MIX_FORMS unless it is the last step; or MIX_COMPLAINT",
    ),
    "TAKE": ("silos", "the MIX_SEENs of the last step", "none: the list is in force"),
    "GIVE_UP": ("silos", "MIX_COMPLAINT", "MIX_OPENED"),
    "JUDGE": (
        "silos",
        "all MIX_KEY, MIX_NAMES, the MIX_FORMS of step 0 and of the last that were published, "
        "MIX_COMPLAINT, all MIX_OPENED",
        "a REFUSAL that names the blamed party",
    ),
    "SHARES": ("nodes", "ARRIVED, then the SHAREs for the node", "HELD"),
    "ATTEST": ("all", "ROLL, all NONCEs", "EVIDENCE, of who must show some"),
    "EVIDENCE": ("all", "all EVIDENCE", "none: it was verified"),
    "PROMISE": ("nodes", "REQUEST", "PROMISE"),
    "RESULT": ("silos", "RESULT", "RESULT_SIGNED"),
    "PROPOSE": ("all", "PROPOSAL", "PROPOSED"),
    "COLLECT_KEY": (
        "all",
        "COLLECT; in each call but COLLECT_REST a NONCE",
        "NODE_KEY; a silo's READY",
    ),
    "COLLECT_DEPOSIT": (
        "silos",
        "COLLECT, all NODE_KEYs",
        "READY, DEPOSIT, VECTOR; CLOSED, if the study asks nothing after it",
    ),
    "COLLECT_LOOK": ("nodes", "COLLECT, all NODE_KEYs, some DEPOSITs", "LOOKED"),
    "COLLECT_PROMISE": ("nodes", "COLLECT, all NODE_KEYs, SET, its DEPOSITs", "SET_PROMISE"),
    "COLLECT_TOTAL": (
        "nodes",
        "COLLECT, all NODE_KEYs, the SET's DEPOSITs, all SET_PROMISEs",
        "SET_TOTAL",
    ),
    "COLLECT_REST": ("all", "RECEIPT", "none: nothing is left to do here for now"),
}
_HEAD = f"""# Messages: tags, calls and refusals

For an implementer. [The
protocol](../protocol.md) explains the words, and says in which order messages come and what is
refused. Wire version {VERSION}; a frame is its payload and {OVERHEAD} bytes more.
"""


def page() -> str:
    """The page.

    Raises:
        ValueError: the code has a tag or a call that is not described here, or has it no more.
    """
    tags = "| tag | name | from | to | payload | bytes |\n|---:|---|---|---|---|---:|"
    calls = (
        "| call | name | to | parts of the request | parts of the answer |\n|---:|---|---|---|---|"
    )
    words = [f"| `{why}` | {says} |" for why, says in REASONS.items() if "evidence-" not in why]
    return "\n".join(
        [
            _HEAD,
            f"## Tags\n\n{tags}",
            *_rows(Tag, TAGS),
            f"\n## Calls\n\nWhere parties run apart.\n\n{calls}",
            *_rows(Call, CALLS),
            "\n## Refusals\n\n| `why` | what a party says of itself |\n|---|---|",
            *words,
            "| `evidence-RULE` | evidence shown to it fails a [rule](../attestation.md#rules) |",
            "",
        ]
    )


def _rows(kinds: type[IntEnum], described: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    odd = {kind.name for kind in kinds} ^ set(described)
    if odd:
        raise ValueError(f"expected a description of each {kinds.__name__}, not: {sorted(odd)}")
    for kind in kinds:
        yield f"| {kind.value} | {kind.name} | {' | '.join(described[kind.name])} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
