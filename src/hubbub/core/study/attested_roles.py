"""The tables `[attestation.aggregator]`, `[attestation.node]` and `[attestation.silo]`.

Each says what a party with that role must show before others tell it anything: on which platform it
runs, which code, how new the firmware is at least.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import (
    Key,
    Section,
    key_of,
    one_of,
    read,
    read_key,
    section_of,
    settings,
    shown,
    table,
    texts,
    truth,
)

SOFTWARE = "software"
_HEX = re.compile(r"[0-9a-f]+")
_MOST_BUILDS, _MOST_NAMES, _MOST_VERSION = 32, 64, 2**31


@dataclass(frozen=True, kw_only=True)
class Pinnable:
    """What can be pinned of a platform."""

    measurements: Mapping[str, int]  # and how many bytes they have; the first one must be pinned
    versions: tuple[str, ...] = ()  # names of its security versions
    graded: bool = False  # whether its vendor gives it a status and advisories
    revocable: bool = False  # whether evidence can come without a revocation list that exists


PLATFORMS: Mapping[str, Pinnable] = {
    "sgx": Pinnable(
        measurements={"mr_enclave": 32, "mr_signer": 32},
        versions=("isv_svn", "tcb_evaluation"),
        graded=True,
    ),
    "tdx": Pinnable(
        measurements={
            "mr_td": 48,
            **{f"rtmr{place}": 48 for place in range(4)},
            **dict.fromkeys(("mr_seam", "mr_config_id", "mr_owner", "mr_owner_config"), 48),
        },
        versions=("tcb_evaluation",),
        graded=True,
    ),
    "snp": Pinnable(
        measurements={"measurement": 48, "host_data": 32}
        | dict.fromkeys(("id_key_digest", "author_key_digest"), 48),
        versions=("fmc", "bootloader", "tee", "snp", "microcode", "guest"),
        revocable=True,
    ),
    "nitro": Pinnable(measurements={f"pcr{place}": 48 for place in range(32)}),
    SOFTWARE: Pinnable(measurements={"code": 48}, versions=("svn",)),
}


@settings
class AttestedRole:
    """What parties with one role must show. Debug mode is never accepted."""

    platform: Annotated[
        str,
        one_of(
            *PLATFORMS,
            says='Where it must run. `"software"` shows nothing, and is for tests and '
            "demonstrations.",
        ),
    ]
    measurements: Annotated[
        tuple[tuple[tuple[str, str], ...], ...],
        Key(
            says="Builds: the code must be one of them, in everything that its table states.",
            values=f"list of 1 to {_MOST_BUILDS} tables of "
            "[names](attestation.md#what-a-study-pins) and hexadecimal digits 0–9, a–f",
            schema={
                "type": "array",
                "minItems": 1,
                "maxItems": _MOST_BUILDS,
                "items": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        ),
    ]
    minimum_tcb: Annotated[
        tuple[tuple[str, int], ...],
        table(
            "The least security versions, by [name](attestation.md#what-a-study-pins).",
            "table of whole numbers from 0",
            default="`{}`",
        ),
    ] = ()
    statuses: Annotated[tuple[str, ...], texts("Intel's words for firmware that is accepted.")] = (
        "UpToDate",
    )
    advisories: Annotated[
        tuple[str, ...],
        texts("Intel's security advisories that may apply.", default="`[]`"),
    ] = ()
    revocation: Annotated[
        bool,
        truth("Whether AMD's revocation list must come with the evidence."),
    ] = True

    def to_dict(self) -> dict[str, Any]:
        """As the table that it is read from, every default written out."""
        lists = {"statuses": list(self.statuses), "advisories": list(self.advisories)}
        builds = [dict(build) for build in self.measurements]
        return (
            asdict(self) | lists | {"measurements": builds, "minimum_tcb": dict(self.minimum_tcb)}
        )


@settings
class Attestation:
    """Who must show what; None: nothing."""

    aggregator: Annotated[AttestedRole | None, table("What the aggregator must show.")] = None
    node: Annotated[
        AttestedRole | None, table("What every compute node must show; the same keys.")
    ] = None
    silo: Annotated[AttestedRole | None, table("What every silo must show; the same keys.")] = None

    def of(self, role: str) -> AttestedRole | None:
        """What parties with a role must show."""
        return self.asked().get(role)

    def asked(self) -> dict[str, AttestedRole]:
        """What is asked for, by role."""
        return {role: shown for role, shown in vars(self).items() if shown is not None}

    def to_dict(self) -> dict[str, Any]:
        """As the tables that it is read from."""
        return {role: shown.to_dict() for role, shown in self.asked().items()}

    @property
    def platforms(self) -> frozenset[str]:
        """Every platform that a role is asked for."""
        return frozenset(shown.platform for shown in self.asked().values())


def attestation_from(stated: Mapping[str, Any], *, nodes: bool) -> Attestation | None:
    """What the table `[attestation]` asks for; None where that is nothing."""
    section = section_of(Attestation, "attestation", stated)
    if not nodes:
        section.absent("node", "without parties.compute_nodes")
    if not section.content:
        return None
    return Attestation(
        **{role: role_from(section.table(role), section.path(role)) for role in section.content}
    )


def role_from(stated: Mapping[str, Any], name: str = "") -> AttestedRole:
    """What one role must show, as a study's table or a policy file says."""
    section = section_of(AttestedRole, name, stated)
    platform = str(read_key(AttestedRole, section, "platform"))
    pinnable = PLATFORMS[platform]
    for key in () if pinnable.graded else ("statuses", "advisories"):
        section.absent(key, f'with platform = "{platform}", which has none')
    if not pinnable.revocable:
        section.absent("revocation", f'with platform = "{platform}", where there is no choice')
    return read(
        AttestedRole,
        name,
        stated,
        measurements=lambda section: _builds(section, pinnable.measurements),
        minimum_tcb=lambda section: _versions(section, pinnable.versions),
        statuses=lambda section: _words(section, "statuses"),
        advisories=lambda section: _words(section, "advisories"),
    )


def _builds(section: Section, known: Mapping[str, int]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The builds that may run."""
    listed, first = section.content.get("measurements"), next(iter(known))
    builds = listed if isinstance(listed, list) else []
    if not 1 <= len(builds) <= _MOST_BUILDS or not all(_is_build(b, known) for b in builds):
        sizes = ", ".join(f"{name} ({2 * size} digits)" for name, size in known.items())
        raise section.refusal(
            "measurements",
            f"a list of 1 to {_MOST_BUILDS} tables that state {first} and whatever else is to be "
            f"compared, in digits 0-9 a-f; known are {sizes[:300]}",
            "ask `hubbub attest measure` for them",
        )
    return tuple(tuple(sorted(build.items())) for build in builds)


def _is_build(build: object, known: Mapping[str, int]) -> bool:
    """Whether a table names measurements of the platform, the first one among them."""
    return (
        isinstance(build, dict)
        and next(iter(known)) in build
        and set(build) <= set(known)
        and all(isinstance(at, str) and _HEX.fullmatch(at) for at in build.values())
        and all(len(at) == 2 * known[name] for name, at in build.items())
    )


def _versions(section: Section, known: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The least security versions."""
    if "minimum_tcb" not in section:
        return ()
    versions = section.table("minimum_tcb")
    for name, value in versions.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if name not in known or not whole or not 0 <= value <= _MOST_VERSION:
            names = ", ".join(known) or "none with this platform"
            raise StudyError(
                f"expected {section.path('minimum_tcb')} to hold whole numbers from 0 under the "
                f"names {names}, got {key_of(name)} = {shown(value)}; fix it"
            )
    return tuple(sorted(versions.items()))


def _words(section: Section, key: str) -> tuple[str, ...]:
    """A list of short texts without order."""
    words: tuple[str, ...] = read_key(AttestedRole, section, key)
    if len(words) > _MOST_NAMES or not all(1 <= len(word) <= 64 for word in words):
        raise section.refusal(key, f"at most {_MOST_NAMES} texts of 1 to 64 characters", "fix it")
    return tuple(sorted(set(words)))
