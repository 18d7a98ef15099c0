"""Every file of the core can be imported with what the core needs: `make core` has no more."""

from __future__ import annotations

import importlib
import pkgutil

import hubbub.core


def test_every_module_of_the_core_is_imported():
    names = [module.name for module in pkgutil.walk_packages(hubbub.core.__path__, "hubbub.core.")]
    assert len(names) > 100
    for name in names:
        assert importlib.import_module(name).__name__ == name
