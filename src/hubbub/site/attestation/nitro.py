"""AWS Nitro Enclaves: a signed CBOR document (COSE_Sign1) that brings its own chain.

The certificates are in the payload, so the payload is decoded before its signature is checked; what
else it says is looked at afterwards. Everything around it has one spelling, and is compared with
it. There is no collateral: AWS asks verifiers not to look for revocation lists, and the signer's
certificate lives three hours, so the time of verification must be near that of the document.

Source: AWS, Nitro Enclaves attestation document (aws-nitro-enclaves-nsm-api, docs/
attestation_process.md); RFC 9052, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA384

from hubbub.core.errors import AttestationError, UserError, with_extra
from hubbub.core.verification.attestation import attested_claims
from hubbub.site.attestation import certificates

MOST_DOCUMENT = 16_384  # bytes
# An array of four: the protected header {1: -35} (ES384), an empty map, the payload, the signature.
_HEADER = bytes.fromhex("a1013822")
_FIRST = bytes.fromhex("8444a1013822a059")
_SIGNATURE = bytes.fromhex("5860")
_SIGNATURE_BYTES = 96
_NEEDED = {"module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle"}
_MAY_BE_EMPTY = {"public_key", "user_data", "nonce"}
_MOST_CHAIN, _MOST_PCRS, _PCR_BYTES, _MOST_DATA = 8, 32, 48, 1024


def verify_nitro(
    document: bytes, collateral: bytes, at: int, root: x509.Certificate | None = None
) -> attested_claims.AttestedClaims:
    """What a document says, once its signature and chain have held.

    Args:
        document: COSE_Sign1 without a tag, as the Nitro Security Module gives it.
        collateral: empty.
        at: the time of verification, seconds since 1970.
        root: AWS's; the pinned one if None.

    Raises:
        AttestationError: by the rule that does not hold.
        UserError: the extra "attest" is not installed.
    """
    if collateral:
        raise AttestationError("collateral", "expected no collateral with Nitro, got some")
    payload, signature = _split(document)
    said = _decoded(payload)
    chain = [
        certificates.certificate_of(one)
        for one in [said["certificate"], *reversed(said["cabundle"])]
    ]
    certificates.check_chain(chain, root or certificates.pinned_root("aws-nitro"), at)
    _check_signature(payload, signature, certificates.curve_key(chain[0], ec.SECP384R1))
    return _claims(
        said, min(int(certificate.not_valid_after_utc.timestamp()) for certificate in chain)
    )


def _split(document: bytes) -> tuple[bytes, bytes]:
    """Payload and signature; everything around them has one spelling."""
    if len(document) > MOST_DOCUMENT:
        raise AttestationError(
            "size", f"expected a document of at most {MOST_DOCUMENT} bytes, got {len(document)}"
        )
    start, end = len(_FIRST) + 2, len(document) - _SIGNATURE_BYTES
    size = (end - len(_SIGNATURE) - start).to_bytes(2, "big") if end > start + 2 else b""
    payload = document[start : end - len(_SIGNATURE)]
    if not size or document != _FIRST + size + payload + _SIGNATURE + document[end:]:
        raise AttestationError(
            "signature", "expected a document that ES384 signs, in its one spelling, got another"
        )
    return payload, document[end:]


def _decoded(payload: bytes) -> dict[str, Any]:
    """The payload with the members that a document has, each of its kind."""
    try:
        import cbor2
    except ImportError:
        raise UserError(
            f"expected the package cbor2 for Nitro, it is missing; {with_extra('attest')}"
        ) from None
    try:
        said = cbor2.loads(
            payload,
            max_depth=4,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            semantic_decoders=None,
        )
        if cbor2.dumps(said) == payload and _is_document(said):
            return dict(said)
    except (cbor2.CBORError, ValueError, TypeError, RecursionError, OverflowError, MemoryError):
        pass
    raise AttestationError("signature", "expected a Nitro document's members, got others")


def _is_document(said: object) -> bool:
    """Whether these are a document's members, each of its kind and of a size that it may have."""
    if not isinstance(said, dict) or not _NEEDED <= set(said) <= _NEEDED | _MAY_BE_EMPTY:
        return False
    chain, pcrs, made = said["cabundle"], said["pcrs"], said["timestamp"]
    return (
        type(said["module_id"]) is str
        and said["digest"] == "SHA384"
        and type(made) is int
        and 0 < made < 2**53
        and type(said["certificate"]) is bytes
        and type(chain) is list
        and 1 <= len(chain) <= _MOST_CHAIN
        and all(type(certificate) is bytes for certificate in chain)
        and type(pcrs) is dict
        and all(type(place) is int and 0 <= place < _MOST_PCRS for place in pcrs)
        and {0, 1, 2} <= set(pcrs)
        and all(type(pcr) is bytes and len(pcr) == _PCR_BYTES for pcr in pcrs.values())
        and all(_is_data(said.get(name)) for name in _MAY_BE_EMPTY)
    )


def _is_data(value: object) -> bool:
    return value is None or (type(value) is bytes and len(value) <= _MOST_DATA)


def _check_signature(payload: bytes, signature: bytes, key: ec.EllipticCurvePublicKey) -> None:
    size = len(payload).to_bytes(2, "big")
    header = b"\x84\x6aSignature1\x44" + _HEADER
    half = _SIGNATURE_BYTES // 2
    r, s = (int.from_bytes(one, "big") for one in (signature[:half], signature[half:]))
    try:
        encoded = utils.encode_dss_signature(r, s)
        key.verify(encoded, header + b"\x40\x59" + size + payload, ec.ECDSA(SHA384()))
    except (InvalidSignature, ValueError):
        raise AttestationError(
            "signature", "expected a document that its certificate has signed, got another"
        ) from None


def _claims(said: Mapping[str, Any], until: int) -> attested_claims.AttestedClaims:
    """What a document says that is known to be AWS's."""
    pcrs: Mapping[int, bytes] = said["pcrs"]
    return attested_claims.AttestedClaims(
        platform="nitro",
        report_data=said.get("user_data") or b"",
        measurements={f"pcr{place}": value for place, value in pcrs.items()},
        debug=not any(map(any, (pcrs[0], pcrs[1], pcrs[2]))),
        made=said["timestamp"] // 1000,
        until=until,
    )
