"""Replicas of a model, which the silos of one process share, and what was seen of each.

This file knows no record.
"""

from __future__ import annotations

import copy
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import nn

from hubbub.learning.torch_settings import is_on
from hubbub.learning.unit_model import UnitModel

# Silos of one process may share a replica of the model, whose parameters are written here.
REPLICA = Lock()
_REPLICAS: WeakKeyDictionary[nn.Module, dict[torch.device, nn.Module]] = WeakKeyDictionary()
# Of a model: rows of a piece, how many are taken at once, and whether they are alone.
CHECKED: WeakKeyDictionary[nn.Module, dict[object, tuple[int, int, bool]]] = WeakKeyDictionary()


def replica(model: nn.Module, device: torch.device) -> nn.Module:
    """The model itself if it is on that device, else one copy there that all silos share.

    The copy has its own parameters: load them before use, while holding `REPLICA`.
    """
    if is_on(model, device):
        return model
    copies = _REPLICAS.setdefault(model, {})
    if device not in copies:
        copies[device] = copy.deepcopy(model).to(device)
    return copies[device]


def places_of(model: nn.Module) -> int:
    """The records that a unit of the model has at most; 0 where each record is one."""
    return model.places if isinstance(model, UnitModel) else 0
