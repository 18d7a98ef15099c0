"""The tables `[parties]` and `[privacy]`: who takes part and what is assumed, what is promised.

Messages say who is to blame by a name, and names become parts of paths. So nobody may be called as
what is no party (the relay, everybody, the public test set), nor as another role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import (
    Section,
    later,
    number,
    one_of,
    read,
    read_key,
    settings,
    text,
    texts,
    whole,
)

_ROSTER = re.compile(r"(|[0-9a-f]{64})")
# No space, so that " and " stands between names only; and never "..".
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_NOBODY = frozenset({"relay", "everybody", "test"})
_MOST_SILOS = 100_000


def parties_from(stated: Mapping[str, Any]) -> Parties:
    """The parties that a table states."""
    parties = read(Parties, "parties", stated, names=_names, roster=_roster)
    _check_noise_shares(parties)
    if parties.nodes_per_silo > parties.compute_nodes:
        raise StudyError(
            f"expected parties.nodes_per_silo <= compute_nodes = {parties.compute_nodes}, "
            f"got {parties.nodes_per_silo}; lower it or leave it out"
        )
    # P4: a vector that is split among nodes needs two of them, or it is not split.
    if parties.shares == "full" and parties.compute_nodes < 2:
        raise StudyError(
            'expected compute_nodes >= 2 with parties.shares = "full", '
            f"got {parties.compute_nodes}; add compute nodes or remove shares"
        )
    if parties.shares == "full" and parties.nodes_per_silo == 1:
        raise StudyError(
            'expected parties.nodes_per_silo >= 2 with parties.shares = "full", got 1: a silo\'s '
            "only node would see its vector; raise it or leave it out"
        )
    if parties.node_hosts:
        _check_node_hosts(parties)
    return parties


def numbered(count: int) -> tuple[str, ...]:
    """The names of silos that were only counted: silo-1 ... silo-N."""
    return tuple(f"silo-{number}" for number in range(1, count + 1))


def _roster(section: Section) -> str:
    """The digest of the roster, where the parties run apart."""
    digest = str(read_key(Parties, section, "roster"))
    if not _ROSTER.fullmatch(digest):
        raise section.refusal(
            "roster", "the roster's digest, 64 hexadecimal digits", "ask `hubbub roster` for it"
        )
    return digest


def _names(section: Section) -> tuple[str, ...]:
    """The silos' names: listed, or made up."""
    if "names" not in section:
        return numbered(read_key(Parties, section, "silos"))
    names = section.texts("names", ())
    valid = all(map(is_name, names))
    if not 2 <= len(names) <= _MOST_SILOS or len(set(names)) < len(names) or not valid:
        raise section.refusal(
            "names",
            "at least two different names of letters a-z and digits, with '-', '_' and '.' inside",
            "rename the silos",
        )
    if any(map(is_reserved, names)):
        others = "names other than test, aggregator, relay, everybody, node-…"
        raise section.refusal("names", others, "rename them")
    if "silos" in section and read_key(Parties, section, "silos") != len(names):
        raise section.refusal("silos", f"{len(names)}, the number of names", "leave it out")
    return names


@settings
class Parties:
    """Who takes part, and what is assumed of them."""

    names: Annotated[
        tuple[str, ...],
        {
            "silos": whole(
                2,
                _MOST_SILOS,
                "The number of silos; they are called `silo-1`, `silo-2`, …",
                default="either",
            )
        },
        texts(
            "Their names, in the roster's order. Not `test`, `aggregator`, `relay`, "
            "`everybody`, `node-…`.",
            "list of at least 2 texts of a–z, 0–9, `-`, `_`, `.`; the first character a letter "
            "or digit, at most 64",
            default="either",
        ),
    ]
    compute_nodes: Annotated[
        int,
        whole(
            0,
            1000,
            "[Compute nodes](protocol.md) that remove the masks; 0: silos share masks pairwise.",
        ),
    ] = 0
    nodes_per_silo: Annotated[
        int,
        whole(0, 1000, "The number of nodes that each silo uses ([P4](privacy.md#p4)); 0: all."),
    ] = 0
    node_hosts: Annotated[
        tuple[str, ...],
        later(
            texts(
                "Silos that run the compute nodes, in the nodes' order, each a different "
                "one: at least colluders + 2, so that one node belongs to an honest silo "
                "([P30](privacy.md#p30)). Empty: others run them.",
                "list of names of silos",
            )
        ),
    ] = ()
    colluders: Annotated[
        int,
        whole(
            0,
            1_000_000,
            "Silos that may collude without weakening the guarantee "
            "([P3](privacy.md#p3)); with `dropouts` at most silos − 2 (− 1 with "
            '`"tee"`).',
        ),
    ]
    dropouts: Annotated[
        int,
        whole(
            0,
            1_000_000,
            "Silos that may be missing from a session or a round without loss; 0 with "
            '`"without-replacement"`.',
        ),
    ] = 0
    trust: Annotated[
        str,
        one_of(
            "none",
            "tee",
            says='Whether attested silos are trusted to add their noise. Running `"tee"` '
            "needs `[attestation.silo]`.",
        ),
    ] = "none"
    shares: Annotated[
        str,
        one_of(
            "compressed",
            "full",
            says='`"full"` sends one vector to each node, at least two, instead of the masked '
            "vector to the aggregator ([SHARE](protocol.md)).",
        ),
    ] = "compressed"
    roster: Annotated[
        str,
        text(
            "The digest that `hubbub roster` prints; demanded [among machines](network.md).",
            "64 digits 0–9, a–f",
            pattern="^[0-9a-f]{64}$",
        ),
    ] = ""

    @property
    def silos(self) -> int:
        """N, the number of silos."""
        return len(self.names)


def _check_noise_shares(parties: Parties) -> None:
    """Enough silos must be left to add the noise (docs/privacy.md P3)."""
    # P3: besides colluders one silo looks on, which knows its own share unless an enclave keeps it.
    spare = 1 if parties.trust == "tee" else 2
    most = parties.silos - spare
    if parties.dropouts > most:
        raise StudyError(
            f"expected parties.dropouts <= silos - {spare} = {most}, "
            f"got {parties.dropouts}; lower it or add silos"
        )
    if parties.colluders > most - parties.dropouts:
        raise StudyError(
            f"expected parties.colluders <= silos - dropouts - {spare} = "
            f"{most - parties.dropouts}, got {parties.colluders}; "
            "lower colluders or dropouts, or add silos"
        )


def _check_node_hosts(parties: Parties) -> None:
    """One node is left if all colluders and one that looks on run some (docs/privacy.md P30)."""
    hosts, least = parties.node_hosts, parties.colluders + 2
    if not set(hosts) <= set(parties.names) or len(set(hosts)) < len(hosts):
        raise StudyError(
            f"expected parties.node_hosts to name silos, each once, got {', '.join(hosts)}; "
            "name those of parties.names that run a node"
        )
    if len(hosts) != parties.compute_nodes:
        raise StudyError(
            f"expected parties.node_hosts to name a silo for each of {parties.compute_nodes} "
            f"compute nodes, got {len(hosts)}; name them all, or set compute_nodes"
        )
    # P30: T silos and the one that looks on run T + 1 nodes, so one more is honest.
    if len(hosts) < least:
        raise StudyError(
            f"expected at least colluders + 2 = {least} parties.node_hosts, so that one node is "
            f"left that no colluder runs, got {len(hosts)}; name more, or lower colluders"
        )


def is_name(name: str) -> bool:
    """Whether a name is short and plain."""
    return _NAME.fullmatch(name) is not None


def is_reserved(name: str, role: str = "silo") -> bool:
    """Whether a name means something else than a party with this role."""
    roles = {"aggregator": name == "aggregator", "node": name.startswith("node-")}
    return name in _NOBODY or any(is_its and other != role for other, is_its in roles.items())


def check_name(name: str, role: str) -> None:
    """Refuse what no party with this role can be called."""
    if not is_name(name):
        raise StudyError(
            "expected a name of up to 64 letters a-z and digits, with '-', '_' and '.' inside, got "
            f"{name[:80]!r}; choose another"
        )
    if is_reserved(name, role):
        raise StudyError(
            f"expected a name that means nobody else, got {name!r} for a {role}; choose another "
            "than relay, everybody, test, aggregator and node-…"
        )


def privacy_from(table: Mapping[str, Any]) -> Privacy:
    """The promise that a table states."""
    privacy: Privacy = read(Privacy, "privacy", table)
    if 0 < privacy.cap < privacy.epsilon:
        raise StudyError(
            f"expected privacy.cap to be at least privacy.epsilon = {privacy.epsilon:g}, got "
            f"{privacy.cap:g}; raise it, or leave it out"
        )
    return privacy


@settings
class Privacy:
    """What is promised to every record."""

    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "The guarantee against the aggregator together with `colluders` silos, for "
            "all parts of the study together.",
        ),
    ]
    delta: Annotated[float, number(1e-12, 0.1, "The delta that belongs to it.")]
    relation: Annotated[
        str,
        one_of(
            "add-remove",
            "substitute",
            says="Neighbours [differ](privacy.md#p1) in a record that is there or not, or "
            'exchanged, as `"without-replacement"` asks for.',
        ),
    ] = "add-remove"
    cap: Annotated[
        float,
        later(
            number(
                0,
                50,
                "Epsilon that all studies of the same records together may spend. The "
                "study's first charge sets it, for [adaptive "
                "studies](ledger.md#what-you-do), in each silo's ledger without a cap; a "
                "cap that a silo has set itself takes precedence. 0: none.",
            )
        ),
    ] = 0.0
