"""Tells whether two checkpoint directories hold the same weights, without reading them whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.checkpoints import list_pickles, list_weight_files
from specdeploy.errors import CheckpointError

HEAD_BYTES: Final = 1 << 18
SAMPLES: Final = 16
SAMPLE_BYTES: Final = 1 << 12


@final
class SampledWeights:
    """Identifies weights by the sizes, beginnings and evenly spread samples of their files."""

    def identify_weights(self, path: Path) -> str | None:
        """Return a digest that equal weights share; None when there are no weight files.

        Raises:
            CheckpointError: a weight file is missing or cannot be read.
        """
        files = list_weight_files(path) or list_pickles(path)
        if not files:
            return None
        digest = hashlib.blake2b(digest_size=16)
        try:
            for file in files:
                _add(digest, file)
        except OSError as error:
            raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
        return digest.hexdigest()


def _add(digest: hashlib.blake2b, file: Path) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name}:{size}\n".encode())
    with file.open("rb") as stream:
        digest.update(stream.read(HEAD_BYTES))
        for sample in range(SAMPLES):
            stream.seek(sample * size // SAMPLES)
            digest.update(stream.read(SAMPLE_BYTES))
