"""Draft length by batch size, in the words of a TensorRT-LLM release.

``draft_len_schedule`` changed its meaning without changing its form: the release profile says
whether a key is the smallest or the largest batch of its tier. A schedule with key 1 is valid in
both and means two things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.record import Record
from specdeploy.core.release_profile import DraftLenSchedule

Meaning = Literal["absent", "lower", "unknown", "upper"]

# A tier of its own must gain this much over going on with the tier before it.
MARGIN: Final = 0.03
# A load this near to a threshold crosses it back and forth.
NEAR: Final = 0.25
# The drafter runs inside the target's engine and keeps state that only drafting refreshes.
_ONE_ENGINE: Final = frozenset({"dflash", "eagle", "eagle3", "mtp", "pard"})


class ScheduleTier(Record):
    """Batch sizes that share a draft length."""

    from_batch: int = Field(ge=1)
    to_batch: int = Field(description="The last one.")
    draft_length: int = Field(ge=0)


class DraftLengthSchedule(Record):
    """Draft length by the number of requests in flight."""

    tiers: list[ScheduleTier] = Field(min_length=1)
    floor: int = Field(description="Smallest draft length; 1 where the drafter would lose state.")
    meaning: Meaning = Field(
        description="What a key bounds in the chosen TensorRT-LLM release; unknown: none is chosen."
    )
    draft_len_schedule: dict[int, int] | None = Field(
        description="As TensorRT-LLM reads it; null when that release or method has none."
    )
    notes: list[str] = []

    @property
    def max_draft_len(self) -> int:
        """The length that the server is built for: the first tier's."""
        return self.tiers[0].draft_length

    def length_at(self, batch: int) -> int:
        """Return the draft length with ``batch`` requests in flight."""
        return [tier for tier in self.tiers if tier.from_batch <= batch][-1].draft_length


def schedule_floor(method: str, meaning: Meaning) -> int:
    """Return the smallest safe draft length.

    A drafter inside the target's engine goes stale while nothing is drafted, and its acceptance
    collapses when drafting starts again (NVIDIA/TensorRT-LLM#16888). A draft model is inside
    the engine in releases whose keys are upper bounds.
    """
    inside = method in _ONE_ENGINE or (method == "draft_target" and meaning == "upper")
    return 1 if inside else 0


def plan_schedule(
    gains: Mapping[int, Sequence[float]],
    *,
    method: str,
    reading: DraftLenSchedule | None,
    max_batch_size: int,
    load: Sequence[int] = (),
) -> DraftLengthSchedule:
    """Return the draft length for every batch size.

    Lengths never grow with the batch: the release takes the first tier's as the largest.

    Args:
        gains: Batch size -> speed of draft lengths 0, 1, ...; only ratios count.
        method: How tokens are drafted.
        reading: How the chosen release reads a schedule; None: no release is chosen.
        max_batch_size: The largest batch there is; the last tier ends there.
        load: The batch sizes that are expected, for the check of thresholds.
    """
    meaning: Meaning = "unknown" if reading is None else reading.keys
    obeyed = reading is None or not reading.methods or method in reading.methods
    floor = schedule_floor(method, meaning)
    tiers = _tiers(dict(_lengths(gains, floor)), max_batch_size)
    keys = schedule_keys(tiers, meaning) if obeyed else None
    notes = [*_notes(tiers, floor=floor, meaning=meaning), *_near(tiers, load)]
    if not obeyed:
        notes.append(f"method {method} takes no draft_len_schedule in this release")
    return DraftLengthSchedule(
        tiers=tiers, floor=floor, meaning=meaning, draft_len_schedule=keys, notes=notes
    )


def check_schedule(
    schedule: Mapping[int, int], *, reading: DraftLenSchedule, max_draft_len: int
) -> Iterator[str]:
    """Yield what a release refuses in a written schedule, and the trap of key 1."""
    if reading.keys == "absent":
        yield "this release has no draft_len_schedule"
        return
    first = min(schedule, default=0)
    if reading.must_contain_one and first != 1:
        yield f"keys are {reading.keys} bounds in this release, and key 1 is missing"
    elif schedule.get(first) != max_draft_len:
        yield f"the smallest key must map to max_draft_len {max_draft_len}"
    if any(length > max_draft_len for length in schedule.values()):
        yield f"a length is above max_draft_len {max_draft_len}"
    if first == 1:
        other = "upper" if reading.keys == "lower" else "lower"
        yield f"a schedule with key 1 is also valid, and differs, where keys are {other} bounds"


def _lengths(gains: Mapping[int, Sequence[float]], floor: int) -> Iterator[tuple[int, int]]:
    """Yield the length of each batch size: never growing, and changing only where it pays.

    Where a larger batch wants a longer draft (experts that are read anyway), the smaller ones
    before it get that length too: lengths may not grow, and the larger load decides.
    """
    batches = sorted(gains)
    best = [
        max(range(floor, len(gains[batch])), key=lambda length: (gains[batch][length], -length))
        for batch in batches
    ]
    longest = list(accumulate(reversed(best), max))[::-1]
    current = longest[0]
    for batch, wanted in zip(batches, longest, strict=True):
        row = gains[batch]
        if row[wanted] > row[current] * (1 + MARGIN):
            current = wanted
        yield batch, current


def _tiers(lengths: Mapping[int, int], largest: int) -> list[ScheduleTier]:
    starts = [
        batch
        for before, batch in zip([None, *lengths], lengths, strict=False)
        if before is None or lengths[before] != lengths[batch]
    ]
    # Below the smallest batch that was looked at, its own length holds.
    firsts = [1, *starts[1:]]
    ends = [*(start - 1 for start in firsts[1:]), max(largest, starts[-1])]
    return [
        ScheduleTier(from_batch=first, to_batch=end, draft_length=lengths[start])
        for first, end, start in zip(firsts, ends, starts, strict=True)
    ]


def schedule_keys(tiers: Sequence[ScheduleTier], meaning: Meaning) -> dict[int, int] | None:
    """Return the tiers as the release reads them; None where it reads none."""
    if tiers[0].draft_length == 0 or meaning in {"absent", "unknown"}:
        return None
    if meaning == "lower":
        return {tier.from_batch: tier.draft_length for tier in tiers}
    # Batches above the last key are off, so a last tier of 0 needs no key.
    return {tier.to_batch: tier.draft_length for tier in tiers if tier.draft_length}


def _notes(tiers: Sequence[ScheduleTier], *, floor: int, meaning: Meaning) -> Iterator[str]:
    if meaning == "unknown":
        yield "set runtime.trtllm_version to have draft_len_schedule in the words of that release"
    elif meaning == "absent":
        yield "nothing here reads a draft_len_schedule: the tiers are for you alone"
    if floor and tiers[-1].draft_length == floor:
        yield f"never below {floor}: the drafter's state goes stale while nothing is drafted"
    if tiers[0].draft_length and not tiers[-1].draft_length:
        yield (
            f"drafting stops at {tiers[-1].from_batch} requests in flight: the draft stays loaded "
            "there, which costs memory and some speed against a server without one"
        )
    if meaning == "upper" and len(tiers) > 1:
        yield "a schedule makes TensorRT-LLM pad its CUDA graphs (enable_padding) at every key"


def _near(tiers: Sequence[ScheduleTier], load: Sequence[int]) -> Iterator[str]:
    for tier in tiers[1:]:
        near = [batch for batch in load if abs(batch - tier.from_batch) <= NEAR * tier.from_batch]
        if near:
            yield (
                f"{near[0]} requests in flight are near the threshold at {tier.from_batch}: the "
                "draft length will change back and forth, and TensorRT-LLM has no hysteresis"
            )
