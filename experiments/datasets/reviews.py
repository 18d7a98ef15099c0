"""Sentences of film reviews and whether people found them favourable, dealt to silos by a hash.

10,605 sentences of Pang and Lee 2005, each rated by some twenty people (Hutto and Gilbert 2014), in
a package of PyPI under the MIT licence, which is fetched once (archive.py).
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from experiments.datasets.archive import Wheel
from hubbub.learning.datasets.wheel import data_folder

_VADER = Wheel(
    package="vaderSentiment==3.3.2",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    is_source=True,
)
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
_RATED = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"


def reviews() -> tuple[list[str], list[int]]:
    """Sentences, and 1 for each whose mean rating is above 0.

    Raises:
        DataError: they cannot be fetched, or another archive comes.
    """
    with tarfile.open(_VADER.file(data_folder() / "wheels")) as members:
        inner = io.BytesIO(_read(members, _INNER))
    with tarfile.open(fileobj=inner) as members:
        lines = _read(members, _RATED).decode("latin-1").splitlines()
    parts = [line.split("\t") for line in lines]
    return [sentence for _, _, sentence in parts], [int(float(mean) > 0) for _, mean, _ in parts]


def _read(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(name)
    assert file is not None, Path(name).name  # noqa: S101 (the archive is pinned)
    return file.read()
