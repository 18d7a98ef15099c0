"""Intel SGX and TDX: a quote, and Intel's collateral for it, verified by `dcap-qvl`.

That library checks signatures, chains, revocation lists and the TCB, and tells what it found. It
passes over some bytes: padding, line ends within certificates, bytes at the end. So the quote is
taken apart here too, and written again from its parts in the one spelling that Intel's quoting
enclaves use; a quote that differs from that in one bit is refused. Quotes of TDX are padded with
zeros up to 5,006 bytes, as Intel's quoting service writes them.

The collateral is the JSON file of `dcap-qvl` (`QuoteCollateralV3`).

Source: Intel, SGX and TDX DCAP quoting library API, "Quote format" of versions 3, 4 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from hubbub.core.disk import json_value
from hubbub.core.errors import AttestationError, UserError, printable, with_extra
from hubbub.core.verification.attestation.policy import MOST_COLLATERAL, MOST_QUOTE, AttestedClaims
from hubbub.site.attestation import certificate_chains

_HEADER, _SIGNATURE, _REPORT = 48, 128, 384
SGX_TEE, TDX_TEE = 0, 0x81
PADDED = 5006
_CHAIN, _CERTIFIED_REPORT = 5, 6  # kinds of certification data
# Bodies that a quote of version 5 names by a number: an enclave's, and two of trust domains.
_BODIES = {1: 384, 2: 584, 3: 648}
_MEMBERS = {
    "pck_crl_issuer_chain",
    "root_ca_crl",
    "pck_crl",
    "tcb_info_issuer_chain",
    "tcb_info",
    "tcb_info_signature",
    "qe_identity_issuer_chain",
    "qe_identity",
    "qe_identity_signature",
}
_MAY_BE_THERE = {"pck_certificate_chain"}
# What the library says, in the words of our rules.
_RULES = (
    (re.compile("expired|not yet valid|NotValid|Expired|validity", re.IGNORECASE), "expired"),
    (re.compile("CRL|revoked", re.IGNORECASE), "revocation"),
    (re.compile("TCB|FMSPC|identity", re.IGNORECASE), "tcb"),
    (re.compile("certificate|chain|issuer", re.IGNORECASE), "chain"),
    (re.compile("debug|profiling", re.IGNORECASE), "debug"),
    (re.compile("migration|SERVTD", re.IGNORECASE), "migration"),
)
_SGX_DEBUG = 0x02  # in the first byte of an enclave's attributes
# Of a trust domain's attributes: the group of bits under each of which others see inside, the right
# to move it, and what only changes its own instructions (LASS, SEPT_VE_DISABLE, PKS, KL, PERFMON).
_TDX_DEBUG, _TDX_MIGRATABLE = 0xFF, 1 << 29
_TDX_HARMLESS = 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31 | 1 << 63


def verify_sgx(quote: bytes, collateral: bytes, at: int) -> AttestedClaims:
    """What a quote of an SGX enclave says; see `verify_tdx`."""
    said = verified_quote(quote, collateral, at, SGX_TEE)
    report = said["report"]["SgxEnclave"]
    attributes = bytes.fromhex(report["attributes"])
    return _claims(
        said,
        "sgx",
        report,
        measurements={name: report[name] for name in ("mr_enclave", "mr_signer")},
        tcb={"isv_svn": report["isv_svn"]},
        debug=bool(attributes[0] & _SGX_DEBUG),
    )


def verify_tdx(quote: bytes, collateral: bytes, at: int) -> AttestedClaims:
    """What a quote of a TDX trust domain says, once its signature and chain have held.

    Args:
        quote: as Intel's quoting service writes it.
        collateral: JSON of `dcap-qvl`.
        at: the time of verification, seconds since 1970.

    Raises:
        AttestationError: by the rule that does not hold.
        UserError: the extra "attest" is not installed.
    """
    return claims_of_domain(verified_quote(quote, collateral, at, TDX_TEE))


def claims_of_domain(said: Mapping[str, Any]) -> AttestedClaims:
    """What a verified quote says of a trust domain."""
    ((_, whole),) = said["report"].items()
    report = whole.get("base", whole)
    attributes = int.from_bytes(bytes.fromhex(report["td_attributes"]), "little")
    if attributes & ~(_TDX_DEBUG | _TDX_MIGRATABLE | _TDX_HARMLESS):
        raise AttestationError(
            "platform", f"expected a trust domain of known attributes, got {attributes:#x}"
        )
    # A service domain may act on the one that it is bound to; those that move domains are such.
    is_bound = any(bytes.fromhex(whole.get("mr_service_td", "")))
    same = ("mr_td", "mr_seam", "mr_config_id", "mr_owner", "mr_owner_config")
    names = {**dict(zip(same, same, strict=True)), **{f"rtmr{at}": f"rt_mr{at}" for at in range(4)}}
    return _claims(
        said,
        "tdx",
        report,
        measurements={name: report[theirs] for name, theirs in names.items()},
        tcb={},
        debug=bool(attributes & _TDX_DEBUG),
        migratable=bool(attributes & _TDX_MIGRATABLE) or is_bound,
    )


def _claims(
    said: Mapping[str, Any],
    platform: str,
    report: Mapping[str, Any],
    *,
    measurements: Mapping[str, str],
    tcb: Mapping[str, int],
    debug: bool,
    migratable: bool = False,
) -> AttestedClaims:
    """What is the same for both platforms."""
    return AttestedClaims(
        platform=platform,
        report_data=bytes.fromhex(report["report_data"]),
        measurements={name: bytes.fromhex(value) for name, value in measurements.items()},
        tcb={**tcb, "tcb_evaluation": said["tcb"]["eval_data_number"]},
        debug=debug,
        migratable=migratable,
        status=str(said["tcb"]["status"]),
        advisories=tuple(map(str, said["tcb"]["advisory_ids"])),
        revocation=True,
        until=_end(said),
    )


def _end(said: Mapping[str, Any]) -> int:
    """When the first of what bears a quote out ends, seconds since 1970."""
    return int(min(said["earliest_expiration_date"], said["qe_iden_earliest_expiration_date"]))


def verified_quote(quote: bytes, collateral: bytes, at: int, tee: int) -> Mapping[str, Any]:
    """What `dcap-qvl` found, of a quote in its one spelling; see `verify_tdx`."""
    if len(quote) > MOST_QUOTE or len(collateral) > MOST_COLLATERAL:
        raise AttestationError(
            "size",
            f"expected a quote of at most {MOST_QUOTE} bytes and collateral of {MOST_COLLATERAL}, "
            f"got {len(quote)} and {len(collateral)}",
        )
    if len(quote) < _HEADER or int.from_bytes(quote[4:8], "little") != tee:
        raise AttestationError("platform", "expected a quote of the platform, got another")
    if not 0 <= at < 2**40:
        raise AttestationError("time", f"expected a time since 1970, got {at} seconds")
    said = _asked(quote, _collateral_text(collateral), at)
    # The library takes a list of revoked certificates for over in its last second, and nothing
    # else; which platform's ends first must not matter.
    if at >= _end(said):
        raise AttestationError(
            "expired", f"expected collateral that ends after {at}, got one that ends then; renew it"
        )
    if quote != _respelled(quote):
        raise AttestationError(
            "signature",
            "expected a quote in its one spelling and of its exact length, got bytes that nobody "
            f"has signed; a TDX quote is padded with zeros to {PADDED} bytes",
        )
    return said


def _asked(quote: bytes, collateral: str, at: int) -> Mapping[str, Any]:
    """The library's answer."""
    try:
        import dcap_qvl
    except ImportError:
        raise UserError(
            f"expected the package dcap-qvl for SGX and TDX, it is missing; {with_extra('attest')}"
        ) from None
    root = certificate_chains.pinned_root("intel-sgx").public_bytes(Encoding.DER)

    def found(at: int) -> Mapping[str, Any] | str:
        """What it found at a time, or its reason."""
        try:
            known = dcap_qvl.QuoteCollateralV3.from_json(collateral)
            policy = dcap_qvl.QuotePolicy.claims_only(at)
            verified = dcap_qvl.QuoteVerifier(root).verify_with_policy(quote, known, at, policy)
            return dict(json_value(verified.to_json()))
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            return str(error).split("\n", 1)[0][:200]

    said = found(at)
    if not isinstance(said, str):
        return said
    rule = next((name for words, name in _RULES if words.search(said)), "signature")
    # Of a chain it says that it fails, and not why: one that held at its issue is over.
    if rule == "chain" and not isinstance(found(_issued(collateral)), str):
        rule = "expired"
    raise AttestationError(
        rule, f"expected a quote that Intel's collateral bears out, got: {printable(said)}"
    )


def _collateral_text(collateral: bytes) -> str:
    """The collateral as JSON with its members and no others."""
    try:
        text = collateral.decode()
        said = json_value(text)
        fits = isinstance(said, dict) and _MEMBERS <= set(said) <= _MEMBERS | _MAY_BE_THERE
        if fits and all(isinstance(one, str) or one is None for one in said.values()):
            return text
    except (ValueError, RecursionError):
        pass
    raise AttestationError(
        "collateral", "expected the collateral of dcap-qvl, a JSON file, got another"
    )


def _issued(collateral: str) -> int:
    """When the newer of a collateral's statements was made, seconds since 1970; 0: it is unsaid."""
    with suppress(ValueError, TypeError, KeyError, RecursionError, OSError, OverflowError):
        said = json_value(collateral)
        dates = [json_value(said[name])["issueDate"] for name in ("tcb_info", "qe_identity")]
        return int(max(datetime.fromisoformat(date).timestamp() for date in dates))
    return 0


def _take(reader: BytesIO, size: int) -> bytes:
    """The next bytes of a quote."""
    taken = reader.read(size)
    if len(taken) < size:
        raise AttestationError("size", "expected a whole quote, got one that ends too early")
    return taken


def _number(reader: BytesIO, size: int) -> int:
    return int.from_bytes(_take(reader, size), "little")


def _respelled(quote: bytes) -> bytes:
    """A quote's signed parts, with lengths, certificates and padding in their one spelling."""
    reader = BytesIO(quote)
    header = _take(reader, _HEADER)
    version = int.from_bytes(header[:2], "little")
    signed, wrapped = header + _body(reader, version, header), version > 3
    _number(reader, 4)
    signature = _take(reader, _SIGNATURE)
    if wrapped:
        _take(reader, 6)
    report = _take(reader, _REPORT + 64)
    authentication = _take(reader, _number(reader, 2))
    kind, chain = _number(reader, 2), _take(reader, _number(reader, 4))
    if kind != _CHAIN:
        raise AttestationError("chain", f"expected a quote with its chain, got data of kind {kind}")
    inner = report + _sized(authentication, 2) + _of_kind(_CHAIN, _checked(chain))
    outer = signature + (_of_kind(_CERTIFIED_REPORT, inner) if wrapped else inner)
    whole = signed + _sized(outer, 4)
    return whole.ljust(PADDED, b"\0") if wrapped else whole


def body_of(quote: bytes) -> bytes:
    """The report in a quote, of which nothing was verified."""
    reader = BytesIO(quote)
    header = _take(reader, _HEADER)
    version = int.from_bytes(header[:2], "little")
    body = _body(reader, version, header)
    return body[6:] if version == 5 else body


def _body(reader: BytesIO, version: int, header: bytes) -> bytes:
    """The report of the enclave or the trust domain, with its description in version 5."""
    if version == 3:
        return _take(reader, _BODIES[1])
    if version == 4:
        return _take(reader, _BODIES[1 if header[4] == SGX_TEE else 2])
    described = _take(reader, 6)
    kind, size = int.from_bytes(described[:2], "little"), int.from_bytes(described[2:], "little")
    if version != 5 or _BODIES.get(kind) != size:
        raise AttestationError("platform", "expected a quote of version 3, 4 or 5, got another")
    return described + _take(reader, size)


def _sized(content: bytes, size: int) -> bytes:
    return len(content).to_bytes(size, "little") + content


def _of_kind(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "little") + _sized(content, 4)


def _checked(chain: bytes) -> bytes:
    """Certificates in their one spelling that end in Intel's root, and a zero after them."""
    text = chain.removesuffix(b"\0")
    contents = [content for _, content in certificate_chains.pem_blocks(text)]
    if contents[-1:] != [certificate_chains.pinned_root("intel-sgx").public_bytes(Encoding.DER)]:
        raise AttestationError("chain", "expected a chain that ends in Intel's root, got another")
    return chain
