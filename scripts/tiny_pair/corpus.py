"""The text that the pair is made from: the Python standard library's own sources.

The library is on any machine with Python and carries the PSF licence.  A seeded choice of
modules is held out.  A held-out text keeps only the lines that occur in no training file, so
that nothing the models are measured on was seen in training, not even a common line.
"""

import hashlib
import json
import platform
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

EXCLUDED_FOLDERS = frozenset(
    {
        "__pycache__",
        "config",
        "encodings",
        "idlelib",
        "lib2to3",
        "lib-dynload",
        "pydoc_data",
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "turtledemo",
    }
)
# Tables and machine-specific records, not code that somebody wrote to be read.
EXCLUDED_NAMES = ("_sysconfigdata", "entities.py", "stringprep.py", "this.py")
HELD_OUT_COUNT = 16
HELD_OUT_SIZES = range(12_000, 60_000)
HELD_OUT_CHARACTERS = 6_000


@dataclass(frozen=True)
class Corpus:
    """Training files and held-out files, each as path below the library folder to text."""

    training: dict[str, str]
    held_out: dict[str, str]


def library_folder() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def _wanted(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    if any(part.split("-")[0] in EXCLUDED_FOLDERS or part in EXCLUDED_FOLDERS for part in parts):
        return False
    return not any(name in path.name for name in EXCLUDED_NAMES)


def read_library(folder: Path) -> dict[str, str]:
    """Return the text of every wanted module below ``folder``, in a fixed order."""
    texts: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        if not _wanted(path, folder):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            texts[path.relative_to(folder).as_posix()] = text
    return texts


def split_corpus(texts: dict[str, str], seed: int) -> Corpus:
    """Hold out a seeded choice of middle-sized top-level modules; the rest is for training."""
    eligible = [
        name for name, text in texts.items() if "/" not in name and len(text) in HELD_OUT_SIZES
    ]
    chosen = set(random.Random(seed).sample(sorted(eligible), HELD_OUT_COUNT))
    return Corpus(
        training={name: text for name, text in texts.items() if name not in chosen},
        held_out={name: texts[name] for name in sorted(chosen)},
    )


def line_set(texts: dict[str, str]) -> set[str]:
    """Return every line of ``texts``, without the white space around it."""
    return {line.strip() for text in texts.values() for line in text.splitlines()}


def unseen_lines(text: str, seen: set[str]) -> list[str]:
    """Return the non-blank lines of ``text`` which, stripped, are not in ``seen``."""
    return [line for line in text.splitlines() if line.strip() and line.strip() not in seen]


def held_out_texts(corpus: Corpus) -> dict[str, str]:
    """Return the middle part of each held-out file, cut down to lines unseen in training."""
    seen = line_set(corpus.training)
    texts: dict[str, str] = {}
    for name, text in corpus.held_out.items():
        lines = unseen_lines(text, seen)
        texts[name] = _middle(lines, HELD_OUT_CHARACTERS)
    return texts


def _middle(lines: list[str], characters: int) -> str:
    surplus = sum(len(line) + 1 for line in lines) - characters
    skipped = 0
    first = 0
    while first < len(lines) and skipped < surplus // 2:
        skipped += len(lines[first]) + 1
        first += 1
    taken: list[str] = []
    size = 0
    for line in lines[first:]:
        if size + len(line) + 1 > characters:
            break
        taken.append(line)
        size += len(line) + 1
    return "".join(line + "\n" for line in taken)


def rare_line_texts(texts: dict[str, str]) -> dict[str, str]:
    """Return each text cut down to the lines that no other text has, like a held-out text."""
    owners: dict[str, int] = {}
    for text in texts.values():
        for line in {line.strip() for line in text.splitlines()}:
            owners[line] = owners.get(line, 0) + 1
    shared = {line for line, count in owners.items() if count > 1}
    return {
        name: "".join(line + "\n" for line in unseen_lines(text, shared))
        for name, text in texts.items()
    }


def digest(text: str) -> str:
    """Return the SHA-256 of ``text`` in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def manifest(corpus: Corpus, seed: int) -> dict[str, object]:
    """Return what identifies the data: Python version, seed, and each file's SHA-256."""
    training = {name: digest(text) for name, text in corpus.training.items()}
    held_out = {name: digest(text) for name, text in corpus.held_out.items()}
    return {
        "python_version": platform.python_version(),
        "seed": seed,
        "corpus_sha256": digest(json.dumps([training, held_out], sort_keys=True)),
        "training_characters": sum(len(text) for text in corpus.training.values()),
        "training_files": training,
        "held_out_files": held_out,
    }


def check_held_out(texts: dict[str, str], training: dict[str, str]) -> None:
    """Raise ``ValueError`` if any line of ``texts`` occurs in ``training``, even indented."""
    seen = line_set(training)
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() in seen:
                raise ValueError(f"{name}, line {number} occurs in the training text: {line!r}")
