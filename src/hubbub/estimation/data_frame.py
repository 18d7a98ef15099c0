"""Plain values as a data frame of pandas, which is no part of hubbub and need not be there."""

from __future__ import annotations

from typing import Any

from hubbub.core.errors import UserError


def data_frame(content: Any, otherwise: str) -> Any:
    """A `pandas.DataFrame` of what its constructor takes.

    Args:
        content: rows, or columns by name.
        otherwise: how to have the same without pandas, for a sentence.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UserError(
            "expected pandas to be installed for a data frame, found none; pip install "
            f"pandas, or {otherwise}"
        ) from None
    return pd.DataFrame(content)
