"""Real documents of every platform: accepted as they are, refused after any change."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from tests.site.attestation.samples import GOOD, OUTDATED, Sample

from hubbub.core.errors import AttestationError
from hubbub.core.verification.attestation.policy import PLATFORMS, PlatformEvidence
from hubbub.site.attestation import certificate_chains
from hubbub.site.attestation.devices import SoftwareAttester

NOW = 1_800_000_000
SOFTWARE = Sample(
    platform="software",
    quote=SoftwareAttester().quote(bytes(range(64)), NOW),
    collateral=b"",
    at=NOW,
)
ALL = {**GOOD, "software": SOFTWARE}
VERIFIERS = sorted(point.name for point in entry_points(group=PLATFORMS))
named = pytest.mark.parametrize("name", list(ALL))


def verify(platform: str, quote: bytes, collateral: bytes, at: int) -> None:
    PlatformEvidence(platform=platform, quote=quote, collateral=collateral).verified(at)


def is_refused(sample: Sample, quote: bytes) -> bool:
    try:
        verify(sample.platform, quote, sample.collateral, sample.at)
    except AttestationError:
        return True
    return False


def flipped(document: bytes, bits: range) -> Iterator[bytes]:
    for bit in bits:
        changed = bytearray(document)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def accepted(sample: Sample, bits: range, lengths: range) -> int:
    """How many of these changes pass."""
    cut = (sample.quote[:length] for length in lengths)
    changes = [*flipped(sample.quote, bits), *cut]
    return sum(not is_refused(sample, one) for one in changes)


@named
def test_a_real_document_holds_at_its_time(name: str) -> None:
    found = ALL[name].evidence.verified(ALL[name].at)
    assert found.platform == ALL[name].platform
    assert found.until >= ALL[name].at
    assert found.debug is (name in ("nitro-debug", "nitro-base64"))
    assert not found.migratable


def test_what_real_documents_say() -> None:
    said = {name: one.evidence.verified(one.at) for name, one in GOOD.items()}
    assert said["sgx"].status == "ConfigurationAndSWHardeningNeeded"
    assert said["sgx"].advisories == ("INTEL-SA-00289", "INTEL-SA-00615")
    assert said["sgx"].report_data.startswith(b"Hello, world!")
    assert said["tdx"].status == "UpToDate"
    assert said["tdx"].tcb == {"tcb_evaluation": 17}
    assert said["milan"].tcb["microcode"] == 0xDB
    assert said["turin"].tcb["fmc"] == 1
    assert said["nitro-debug"].report_data == b"hello, world!"
    assert said["nitro"].measurements["pcr0"].hex().startswith("f4d48b81")


@pytest.mark.quick_cases("software", "milan", "turin")
@named
def test_a_change_of_a_bit_or_of_the_length_is_refused(name: str) -> None:
    sample = ALL[name]
    size = len(sample.quote)
    start, step = random.Random(name).randrange(97), 397  # every bit: the slow test
    assert accepted(sample, range(start, 8 * size, step), range(0, size, step)) == 0
    assert accepted(sample, range(8 * (size - 8), 8 * size, 3), range(size - 80, size, 7)) == 0
    assert is_refused(sample, sample.quote + b"\0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["milan", "turin", "sgx", "tdx", "nitro", "software"])
def test_every_bit_and_every_length_is_refused(name: str) -> None:
    size = len(ALL[name].quote)
    assert accepted(ALL[name], range(8 * size), range(size)) == 0


@pytest.mark.slow
def test_the_padding_of_a_tdx_quote_is_covered() -> None:
    """Nobody has signed it: its length and its zeros are demanded."""
    sample, end = GOOD["tdx"], 4936
    assert not any(sample.quote[end:])
    assert accepted(sample, range(8 * end, 8 * 5006), range(end, 5006)) == 0


def test_a_nitro_document_is_signed_under_the_pinned_root() -> None:
    sample = GOOD["nitro"]
    last = 8 * len(sample.quote) - 1
    for bit in (last, 8 * sample.quote.index(b"pcrs")):  # of the signature, and of what it signs
        (changed,) = flipped(sample.quote, range(bit, bit + 1))
        assert is_refused(sample, changed)
    (unsigned,) = flipped(sample.quote, range(last, last + 1))
    with pytest.raises(AttestationError) as caught:
        verify(sample.platform, unsigned, b"", sample.at)
    assert caught.value.rule == "signature"
    another = certificate_chains.pinned_root("amd-milan")
    with pytest.raises(AttestationError) as caught:
        certificate_chains.verify_nitro(sample.quote, b"", sample.at, another)
    assert caught.value.rule == "chain"


@pytest.mark.parametrize("name", ["sgx", "tdx"])
def test_what_stands_after_all_that_was_signed_is_covered(name: str) -> None:
    """The slow tests change every bit and every length."""
    sample = GOOD[name]
    changed = [sample.quote + b"\0", sample.quote[:-1], *flipped(sample.quote, range(-8, -7))]
    assert not any(not is_refused(sample, one) for one in changed)


@pytest.mark.parametrize("name", ["sgx", "tdx"])
def test_the_spelling_of_certificates_within_a_quote_is_covered(name: str) -> None:
    """Line ends, the zero after them, and the bits of base64 that say nothing."""
    sample = GOOD[name]
    first = sample.quote.index(b"-----BEGIN")
    ends = [k for k in range(first, len(sample.quote)) if sample.quote[k : k + 1] in (b"\n", b"=")]
    bits = [8 * place + bit for place in ends for bit in (0, 2, 5)]
    assert sum(not is_refused(sample, *flipped(sample.quote, range(b, b + 1))) for b in bits) == 0


@named
def test_a_document_is_refused_long_before_and_after_its_time(name: str) -> None:
    sample = ALL[name]
    for at in (0, sample.at - 40 * 365 * 86400, sample.at + 40 * 365 * 86400, -1, 2**70):
        with pytest.raises(AttestationError) as caught:
            sample.evidence.verified(at)
        assert caught.value.rule in ("expired", "revocation", "time", "tcb")


@pytest.mark.parametrize("name", [name for name in GOOD if GOOD[name].platform in ("snp", "nitro")])
def test_a_document_holds_until_it_says_and_no_second_longer(name: str) -> None:
    until = GOOD[name].evidence.verified(GOOD[name].at).until
    assert GOOD[name].evidence.verified(until).until == until
    with pytest.raises(AttestationError, match="expected certificates that are valid at"):
        GOOD[name].evidence.verified(until + 1)


@pytest.mark.parametrize("name", ["sgx", "tdx"])
def test_a_quote_holds_until_the_second_before_its_collateral_ends(name: str) -> None:
    end = GOOD[name].evidence.verified(GOOD[name].at).until
    assert GOOD[name].evidence.verified(end - 1).until == end
    with pytest.raises(AttestationError) as caught:
        GOOD[name].evidence.verified(end)
    assert caught.value.rule == "expired"  # though for the library what ends is in a chain


def test_a_quote_whose_tcb_is_in_no_level_is_refused() -> None:
    with pytest.raises(AttestationError) as caught:
        OUTDATED.evidence.verified(OUTDATED.at)
    assert caught.value.rule == "tcb"


def test_a_chips_report_with_another_chips_certificate_is_refused() -> None:
    milan, genoa = GOOD["milan"], GOOD["genoa"]
    with pytest.raises(AttestationError):
        verify("snp", milan.quote, genoa.collateral, milan.at)


@named
def test_a_document_is_refused_by_every_other_verifier(name: str) -> None:
    sample = ALL[name]
    for other in {*VERIFIERS} - {sample.platform}:
        with pytest.raises(AttestationError):
            verify(other, sample.quote, sample.collateral, sample.at)


@pytest.mark.parametrize("name", ["milan", "turin"])
def test_a_bit_of_a_chips_certificates_is_refused(name: str) -> None:
    sample = GOOD[name]
    start = random.Random(name).randrange(101)
    for changed in flipped(sample.collateral, range(start, 8 * len(sample.collateral), 211)):
        with pytest.raises(AttestationError):
            verify("snp", sample.quote, changed, sample.at)


def test_the_pinned_roots_are_those_of_the_page(page: str) -> None:
    for name in ("amd-milan", "amd-genoa", "amd-turin", "intel-sgx", "aws-nitro"):
        root = certificate_chains.pinned_root(name).public_bytes(Encoding.DER)
        assert hashlib.sha256(root).hexdigest() in page


# A fuzzer on every parser: nothing but our own error comes out -------------------------------


def tried(platform: str, quote: bytes, collateral: bytes, at: int) -> None:
    said = ""
    try:
        verify(platform, quote, collateral, at)
    except AttestationError as error:
        said = str(error)
    assert said.isprintable()


@pytest.mark.slow
@given(st.sampled_from(VERIFIERS), st.binary(max_size=2000), st.binary(max_size=300))
def test_no_bytes_raise_another_error(platform: str, quote: bytes, collateral: bytes) -> None:
    tried(platform, quote, collateral, NOW)
    with contextlib.suppress(AttestationError):
        PlatformEvidence.read(quote)


@st.composite
def changed(draw: st.DrawFn, document: bytes) -> bytes:
    """A document with pieces replaced, moved, doubled or cut out."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(document)))
        end = min(len(document), start + draw(st.integers(0, 64)))
        middle = draw(st.one_of(st.binary(max_size=16), st.just(document[start:end] * 2)))
        document = document[:start] + middle + document[end:]
    return document


@pytest.mark.slow
@given(st.data())
def test_no_changed_document_raises_another_error(data: st.DataObject) -> None:
    sample = ALL[data.draw(st.sampled_from(sorted(ALL)))]
    quote = data.draw(changed(sample.quote))
    collateral = data.draw(st.one_of(st.just(sample.collateral), changed(sample.collateral)))
    tried(sample.platform, quote, collateral, sample.at)
    packed = data.draw(changed(sample.evidence.to_bytes()))
    with contextlib.suppress(AttestationError):
        PlatformEvidence.read(packed).verified(sample.at)


def test_evidence_survives_its_way_as_bytes() -> None:
    for sample in ALL.values():
        assert PlatformEvidence.read(sample.evidence.to_bytes()) == sample.evidence
