"""Flower's SecAgg+ client, its own functions, on one vector: run by a Python that has flwr.

    /path/to/flwr/bin/python flower.py N COORDINATES TRIES

All N clients go through its stages "setup" and "share keys"; then the first one's stage "collect
masked vectors" is timed: open the shares, quantize, add the private and N - 1 pairwise masks. On
the server, what each client's vector costs when nobody is missing: adding it, rebuilding its seed
from shares, and taking its private mask off. Defaults of SecAggPlusWorkflow throughout.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from statistics import median
from typing import Any

import numpy as np
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_separate,
)

# The package gives a function of the module's own name in its place.
client = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

CLIPPING, TARGET, MODULUS = 8.0, 1 << 22, 1 << 32
MAX_WEIGHT = 1000.0


def set_up(clients: int) -> tuple[list[Any], dict[str, list[Any]], list[bytes]]:
    """The clients' states after sharing keys, what the first is sent, and its seed's shares."""
    states = [client.SecAggPlusState(nid=number) for number in range(1, clients + 1)]
    configs = {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: clients,
        Key.THRESHOLD: clients // 2 + 1,
        Key.CLIPPING_RANGE: CLIPPING,
        Key.TARGET_RANGE: TARGET,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: MAX_WEIGHT,
    }
    for state in states:
        client._setup(state, configs)  # noqa: SLF001  # the stages have no public names
    keys = {str(state.nid): (state.pk1, state.pk2) for state in states}
    share = client._share_keys  # noqa: SLF001  # as above
    sent = {state.nid: share(state, keys) for state in states}
    inbox = [
        (source, ciphertext)
        for source, content in sent.items()
        for receiver, ciphertext in zip(
            content[Key.DESTINATION_LIST], content[Key.CIPHERTEXT_LIST], strict=True
        )
        if receiver == 1
    ]
    received = {
        Key.SOURCE_LIST: [source for source, _ in inbox],
        Key.CIPHERTEXT_LIST: [ciphertext for _, ciphertext in inbox],
    }
    return states, received, seed_shares(states, sent[1])


def seed_shares(states: list[Any], sent: dict[str, list[Any]]) -> list[bytes]:
    """The shares of the first client's seed, as their holders would give them to the server."""
    shares = [states[0].rd_seed_share_dict[1]]
    for receiver, ciphertext in zip(
        sent[Key.DESTINATION_LIST], sent[Key.CIPHERTEXT_LIST], strict=True
    ):
        plaintext = decrypt(states[receiver - 1].ss2_dict[1], ciphertext)
        shares.append(share_keys_plaintext_separate(plaintext)[2])
    return shares


def timed(work: Callable[[], Any], tries: int) -> tuple[list[float], Any]:
    spent, found = [], None
    for _ in range(tries):
        start = time.perf_counter()
        found = work()
        spent.append(1e3 * (time.perf_counter() - start))
    return spent, found


def unmasked(shares: list[bytes], total: list[Any], vector: list[Any]) -> list[Any]:
    """What the server does for one client that arrived."""
    summed = parameters_addition(total, vector)
    seed = combine_shares(shares)
    return parameters_subtraction(
        summed, pseudo_rand_gen(seed, MODULUS, [part.shape for part in vector])
    )


def main() -> None:
    clients, coordinates, tries = map(int, sys.argv[1:])
    vector = np.random.default_rng(0).normal(size=coordinates).astype(np.float32)
    parameters = ndarrays_to_parameters([vector])
    states, inbox, shares = set_up(clients)
    collect = client._collect_masked_vectors  # noqa: SLF001  # as above
    spent, sent = timed(lambda: collect(states[0], inbox, 100, parameters), tries)
    masked = [bytes_to_ndarray(data) for data in sent[Key.MASKED_PARAMETERS]]
    served, _ = timed(lambda: unmasked(shares, masked, masked), tries)
    print(
        json.dumps(
            {
                "least": min(spent),
                "median": median(spent),
                "server_least": min(served),
                "bytes": sum(len(data) for data in sent[Key.MASKED_PARAMETERS]),
                "versions": {
                    "flwr": version("flwr"),
                    "numpy": np.__version__,
                    "python": platform.python_version(),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
