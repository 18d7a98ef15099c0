"""The files that stand for one approved study in a party's folder.

    approved/ID.toml     the study, as this party's administrator has approved it
    approved/ID.code     the hashes of the code that it names, as it was here then
    approved/ID.read     where a silo's records for it were read; not answered before

The study is written last, so that a crash leaves no approval without the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import json_value, write_text
from hubbub.core.errors import UserError
from hubbub.core.study.study import Study
from hubbub.site.network.key_files import text_of

APPROVED = "approved"


@dataclass(frozen=True)
class ApprovalFiles:
    """They may be there or not.

    Args:
        home: the party's folder.
        study: the id.
    """

    home: Path
    study: bytes

    @property
    def path(self) -> Path:
        """The study's own file."""
        return self.home / APPROVED / f"{self.study.hex()}.toml"

    @property
    def is_there(self) -> bool:
        """Whether the study was approved, whatever became of the file since."""
        return self.path.is_file()

    @property
    def is_read(self) -> bool:
        """Whether the records for it were read, where they are read once."""
        return self._read.is_file()

    @property
    def hashes(self) -> Mapping[str, object]:
        """What was approved of code; nothing if no file says it."""
        try:
            hashes = json_value(text_of(self._code))
        except (UserError, ValueError):
            return {}
        return hashes if isinstance(hashes, Mapping) else {}

    @property
    def read_in(self) -> list[Path]:
        """The folders in which something was read."""
        return [Path(line) for line in text_of(self._read).splitlines()] if self.is_read else []

    def note_read(self, folder: Path) -> None:
        """Keep in which folders something was read, for a withdrawal to sweep all of them."""
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        write_text(self._read, "\n".join(dict.fromkeys(map(str, [*self.read_in, folder]))))

    def write(self, study: Study, hashes: Mapping[str, str]) -> None:
        """The study is approved from now on."""
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        write_text(self._code, json.dumps(hashes))
        write_text(self.path, study.as_toml())

    def remove(self) -> None:
        """The study is approved no more, from the first file on."""
        for path in (self.path, self._code, self._read):
            path.unlink(missing_ok=True)

    @property
    def _code(self) -> Path:
        return self.path.with_suffix(".code")

    @property
    def _read(self) -> Path:
        return self.path.with_suffix(".read")
