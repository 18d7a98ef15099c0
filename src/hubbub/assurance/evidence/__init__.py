"""Evidence of a run: one signed file, and what can be shown with nothing but that file.

`collecting` puts it together, `reading` signs and reads it, `claims` checks it, `finding` is one
thing that was checked.
"""

from hubbub.assurance.evidence.collecting import FILE, checked_part, collect, part_of

__all__ = ["FILE", "checked_part", "collect", "part_of"]
