"""hubbub: one model from many silos, with differential privacy that nobody has to be trusted for.

Every name is loaded when it is first used. The accountant, the study and the plan need numpy, scipy
and cryptography only; what trains (`hubbub.run`, `hubbub.learning`) needs the extra `learn`.

The names are in `__init__.pyi`, where type checkers look for them; so are those of other rooms.
"""

from __future__ import annotations

import lazy_loader

VERSION = "0.2.0"  # for everybody who writes it down
__version__ = VERSION


__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
