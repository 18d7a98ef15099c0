"""What verified evidence says, in the same words for all platforms.

Nothing here is believed before a verifier has made it. What of it is enough is a policy's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UP_TO_DATE = "UpToDate"
REPORT_DATA_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class AttestedClaims:
    """What the vendor of a platform vouches for.

    Args:
        platform: "sgx", "tdx", "snp", "nitro" or "software".
        report_data: what the attested program had signed with it: 64 bytes on all platforms but
            Nitro, where it may be any length.
        measurements: of the code, by the platform's names.
        tcb: security versions of the platform, by its names.
        debug: whether its owner can look inside.
        migratable: whether its memory, with all secrets, may be moved to another machine.
        status: the vendor's word for the platform's firmware, where it has one.
        advisories: security advisories that the vendor says apply.
        revocation: whether revocation lists were checked; None where the vendor has none.
        made: when it was made, seconds since 1970, where it says so; else None.
        until: when the collateral ends, seconds since 1970.
    """

    platform: str
    report_data: bytes = field(repr=False)
    measurements: Mapping[str, bytes]
    tcb: Mapping[str, int] = field(default_factory=dict)
    debug: bool
    migratable: bool = False
    status: str = UP_TO_DATE
    advisories: tuple[str, ...] = ()
    revocation: bool | None = None
    made: int | None = None
    until: int

    def to_dict(self) -> dict[str, object]:
        """It as JSON knows it."""
        return {
            "platform": self.platform,
            "report_data": self.report_data.hex(),
            "measurements": {name: value.hex() for name, value in self.measurements.items()},
            "tcb": dict(self.tcb),
            "debug": self.debug,
            "migratable": self.migratable,
            "status": self.status,
            "advisories": list(self.advisories),
            "revocation_checked": self.revocation,
            "made": self.made,
            "valid_until": self.until,
        }
