"""Which records are held back from training, to be asked about the model (docs/privacy.md P16).

Each record decides it alone, so that one more or less changes nothing about the others.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.records import Records


def held_back(records: Records, share: float, seed: bytes) -> NDArray[np.bool_]:
    """Which records are held back: about this share of them, each by its own bytes and the seed.

    Of a patient all are or none, by the bytes of all of them in their order.

    Args:
        records: n of them.
        share: probability that a record is held back, in (0, 1).
        seed: public bytes, such as the study id.

    Returns:
        (n,) bool, True for the records that are held back.

    >>> records = Records(
    ...     inputs=np.arange(200, dtype=np.float32)[:, None], targets=np.zeros(200, np.float32)
    ... )
    >>> 10 < held_back(records, 0.2, b"study").sum() < 80
    np.True_
    """
    limit = int(share * 2.0**64)
    units = np.arange(len(records)) if records.patients is None else records.patients
    hashes = [hashlib.sha256(seed) for _ in range(records.units)]
    for unit, one, y in zip(units, records.inputs, records.targets, strict=True):
        hashes[unit].update(one.tobytes() + y.tobytes())
    first = [int.from_bytes(digest.digest()[:8], "big") < limit for digest in hashes]
    return np.array(first, dtype=bool)[units]
