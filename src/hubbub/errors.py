"""Every error and warning of hubbub, where users import them from."""

from hubbub.core.errors import *  # noqa: F403
