"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure, and neither is a draw that only one run makes.
settings.register_profile("specdeploy", deadline=None, derandomize=True)
settings.load_profile("specdeploy")
