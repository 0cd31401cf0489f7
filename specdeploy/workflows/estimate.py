"""Predict deployments as they are described: one by flags, or many, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Final, final, get_args

from specdeploy.core.acceptance import (
    AcceptanceProfile,
    MixedCurve,
    given_profile,
    mix,
    mixed_bounds,
    mixed_table,
)
from specdeploy.core.compat import CHECKED_METHODS, Member, doubts_of
from specdeploy.core.config import CategoryMix
from specdeploy.core.estimate import (
    Deployed,
    Estimate,
    PointLoad,
    TokensPerStep,
    estimate_loads,
    memory_request,
)
from specdeploy.core.hardware import GpuSpec, find_gpu
from specdeploy.core.memory import GpuMemory, MemoryLimit, MemoryPlan, plan_memory
from specdeploy.core.models import ModelSpec
from specdeploy.core.nearest import did_you_mean
from specdeploy.core.repository import Shape
from specdeploy.core.resolution import DEFAULT_DRAFT_LENGTH, DEFAULT_NUM_TOKENS, DEFAULT_SHAPE
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import DEFAULT, Constants, Load, mtp_head
from specdeploy.core.tuner.costs import draft_costs
from specdeploy.core.tuner.space import spread
from specdeploy.errors import ConfigError, InfeasiblePlanError, SpecdeployError
from specdeploy.workflows.inspect import locate
from specdeploy.workflows.ports import CheckpointReader, HubResolver
from specdeploy.workflows.step_times import (
    Checkpoints,
    KernelTables,
    StepSource,
    choose_step_times,
)
from specdeploy.workflows.tuning_ports import TuningFiles
from specdeploy.workflows.tuning_question import read_profile

CHUNK: Final = 1000
_LARGEST: Final = 2**24
_NO_MIX: Final = CategoryMix()


@dataclass(frozen=True, slots=True)
class EstimateTools:
    """What estimating reads with."""

    checkpoints: CheckpointReader
    hub: HubResolver
    files: TuningFiles
    kernels: KernelTables


@dataclass(frozen=True, slots=True)
class Query:
    """One deployment as it is described; the keys of a JSON line, and the flags.

    ``draft_tp`` and ``draft_precision`` are the target's unless given.
    """

    target: str | None = None
    draft: str | None = None
    gpu: str | None = None
    tp: int = 1
    draft_tp: int | None = None
    precision: str = "auto"
    draft_precision: str | None = None
    kv_dtype: str = "auto"
    method: str | None = None
    shape: str = DEFAULT_SHAPE
    source: StepSource = "auto"
    batch: int = 1
    input_len: int = 1024
    output_len: int = 256
    draft_length: int | None = None
    tokens_per_step: float | None = None
    acceptance: float | str | None = None
    max_num_tokens: int | None = None
    memory_limit: float | None = None


KEYS: Final = tuple(each.name for each in fields(Query))
CHOICES: Final = {
    "method": CHECKED_METHODS,
    "shape": get_args(Shape),
    "source": get_args(StepSource),
}
_UNSAID: Final = {each.name: each.default for each in fields(Query)}
_LEAST: Final = {"output_len": 2, "draft_length": 0}
_WHOLE: Final = frozenset(
    {"tp", "draft_tp", "batch", "input_len", "output_len", "draft_length", "max_num_tokens"}
)
_SERVED: Final = (
    *("target", "draft", "gpu", "tp", "draft_tp", "precision", "draft_precision"),
    *("kv_dtype", "method", "shape", "source", "memory_limit"),
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, ready to be worked out."""

    deployed: Deployed
    load: PointLoad
    assumptions: tuple[str, ...]


@final
@dataclass
class Estimator:
    """Answers queries; models, pairs and acceptance profiles are worked out once.

    Args:
        tools: What reads checkpoints and profiles.
        cwd: Where relative paths start.
        constants: Of the speed model.
    """

    tools: EstimateTools
    cwd: Path
    constants: Constants = DEFAULT
    _paths: dict[str, Path] = field(default_factory=dict)
    _models: dict[str, ModelSpec] = field(default_factory=dict)
    _deployed: dict[tuple[object, ...], tuple[Deployed, tuple[str, ...]]] = field(
        default_factory=dict
    )
    _mixed: dict[float | str, MixedCurve] = field(default_factory=dict)

    def estimate(self, query: Query) -> tuple[Estimate, MemoryPlan]:
        """Return one estimate with its memory line by line.

        Raises:
            ConfigError: a model, a GPU or a size is wrong.
        """
        asked = self._ask(query)
        plan = plan_memory(memory_request(asked.deployed, asked.load))
        found = Estimate.model_validate(self._answers([asked])[0])
        memory = found.memory.evolve(plan=plan)
        deployed, load = asked.deployed, asked.load
        costs = draft_costs(
            deployed.pair,
            deployed.gpu,
            Load(load.batch, load.input_len, load.output_len),
            draft_length=load.draft_length or DEFAULT_DRAFT_LENGTH,
            constants=deployed.constants,
        )
        return found.evolve(memory=memory, draft_costs=costs), plan

    def lines(self, lines: Iterable[str], default: Query) -> Iterator[dict[str, object]]:
        """Yield one answer for each line of JSON, in order; empty lines are left out.

        A line that cannot be answered gives ``{"error": ..., "line": n}``. Lines are read some
        hundreds at a time, because many points of one pair are worked out together.
        """
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        while chunk := list(islice(numbered, CHUNK)):
            yield from self._chunk(chunk, default)

    def _chunk(
        self, chunk: Sequence[tuple[int, str]], default: Query
    ) -> Iterator[dict[str, object]]:
        answers: dict[int, dict[str, object]] = {}
        groups: dict[int, list[tuple[int, _Asked]]] = {}
        for number, line in chunk:
            asked = self._try(line, default)
            if isinstance(asked, str):
                answers[number] = {"error": asked, "line": number}
            else:
                groups.setdefault(id(asked.deployed), []).append((number, asked))
        for group in groups.values():
            found = self._answers([asked for _, asked in group])
            answers |= {number: answer for (number, _), answer in zip(group, found, strict=True)}
        yield from (answers[number] for number, _ in chunk)

    def _try(self, line: str, default: Query) -> _Asked | str:
        try:
            return self._ask(_query(line, default))
        except SpecdeployError as error:
            return f"{error}; {error.hint}" if error.hint else str(error)

    def _answers(self, asked: Sequence[_Asked]) -> list[dict[str, object]]:
        found = estimate_loads(asked[0].deployed, [each.load for each in asked])
        for answer, each in zip(found, asked, strict=True):
            told = answer["assumptions"]
            assert isinstance(told, list)  # noqa: S101 - as the record says
            told.extend(each.assumptions)
        return found

    def _ask(self, query: Query) -> _Asked:
        key = tuple(getattr(query, name) for name in _SERVED)
        if key not in self._deployed:
            self._deployed[key] = self._deploy(query)
        deployed, told = self._deployed[key]
        drafts = deployed.pair.method != "none"
        length = (query.draft_length if query.draft_length is not None else _usual(query)) * drafts
        tokens = self._tokens(query, length) if length else None
        load = PointLoad(
            batch=query.batch,
            input_len=query.input_len,
            output_len=query.output_len,
            draft_length=length,
            max_num_tokens=query.max_num_tokens
            or max(DEFAULT_NUM_TOKENS, query.batch * (length + 1)),
            tokens=tokens,
        )
        return _Asked(deployed, load, (*told, *self._assumptions(query, load)))

    def _tokens(self, query: Query, length: int) -> TokensPerStep | None:
        given = query.tokens_per_step
        if given is not None:
            if not 1 <= given <= length + 1:
                raise ConfigError(
                    f"tokens_per_step {given:g} is not between 1 and {length + 1} "
                    "(draft_length + 1)"
                )
            return TokensPerStep(given, given, given)
        if query.acceptance is None:
            return None
        mixed = self._acceptance(query.acceptance)
        low, high = mixed_bounds(mixed, length)
        return TokensPerStep(mixed_table(mixed, length)[length], low[length], high[length])

    def _acceptance(self, word: float | str) -> MixedCurve:
        if word not in self._mixed:
            self._mixed[word] = mix(self._profile(word), _NO_MIX)
        return self._mixed[word]

    def _profile(self, word: float | str) -> AcceptanceProfile:
        if isinstance(word, str):
            return read_profile(word, cwd=self.cwd, files=self.tools.files)
        return given_profile(word)

    def _assumptions(self, query: Query, load: PointLoad) -> Iterator[str]:
        if not load.draft_length:
            return
        if load.tokens is None:
            yield "no acceptance is known: give acceptance, or tokens_per_step"
        elif query.tokens_per_step is None and query.acceptance is not None:
            yield from self._acceptance(query.acceptance).assumptions
        if query.draft_length is None:
            yield f"draft length {load.draft_length} (draft_length is not given)"

    def _deploy(self, query: Query) -> tuple[Deployed, tuple[str, ...]]:
        """Return the deployment, and where its step times come from if that is worth telling."""
        for name in ("target", "gpu"):
            if getattr(query, name) is None:
                raise ConfigError(f"no {name} is given", hint=f"pass --{name}")
        gpu = find_gpu(query.gpu or "")
        pair = self._pair(query)
        target, draft = (self._paths.get(name or "") for name in (query.target, query.draft))
        assert target is not None  # noqa: S101 - the pair was read from it
        timed = choose_step_times(
            pair,
            gpu,
            Checkpoints(target, draft),
            source=self._source(query),
            tables=self.tools.kernels,
        )
        limit = MemoryLimit.given(query.memory_limit)
        told = (*timed.told, *self._doubts(query, gpu, drafts=pair.draft is not None))
        return Deployed(timed.pair, gpu, GpuMemory.of(gpu), self.constants, limit), told

    def _doubts(self, query: Query, gpu: GpuSpec, *, drafts: bool) -> Iterator[str]:
        target = self._member(query.target or "", query.precision)
        served = query.draft_precision or query.precision
        draft = self._member(query.draft, served) if drafts and query.draft else None
        for doubt in doubts_of(target, draft, gpu):
            yield f"it is served although {doubt}"

    def _member(self, reference: str, precision: str) -> Member:
        return Member(path=reference, model=self._model(reference), precision=precision)

    def _source(self, query: Query) -> StepSource:
        """Return where step times come from; a calibration was fitted with the roofline."""
        fitted = query.source == "auto" and self.constants.calibrated
        return "physics" if fitted else query.source

    def _pair(self, query: Query) -> ServedPair:
        target = self._model(query.target or "")
        served = spread(target, precision=query.precision, kv_dtype=query.kv_dtype, tp=query.tp)
        method = _method(query)
        if method == "none":
            return ServedPair(served)
        spec = self._draft(query, target, method)
        draft = None
        if spec is not None:
            draft = spread(
                spec,
                precision=query.draft_precision or query.precision,
                kv_dtype=query.kv_dtype,
                tp=query.draft_tp or query.tp,
            )
        return ServedPair(
            served,
            draft,
            "ngram" if method == "ngram" else "draft_target",
            through_bls=query.shape == "engine",
        )

    def _draft(self, query: Query, target: ModelSpec, method: str) -> ModelSpec | None:
        if method == "ngram":
            return None
        if query.draft is not None:
            return self._model(query.draft)
        if method == "mtp" and target.mtp_parameters:
            return mtp_head(target)
        raise ConfigError(f"method {method} needs a draft, and none is given", hint="pass --draft")

    def _model(self, reference: str) -> ModelSpec:
        if reference not in self._models:
            path = self.cwd / locate(reference, self.tools.hub)
            self._models[reference] = self.tools.checkpoints.read_model(path)
            self._paths[reference] = path
        return self._models[reference]


def require_fit(plan: MemoryPlan) -> None:
    """Refuse a deployment that does not fit.

    Raises:
        InfeasiblePlanError: with what binds and what would fit.
    """
    if not plan.fits:
        ways = "; or ".join(suggestion.message for suggestion in plan.suggestions)
        raise InfeasiblePlanError(f"it does not fit: {plan.binding.message}", hint=ways or None)


def check_query(values: Mapping[str, object], default: Query) -> Query:
    """Return a query with the given values; None stands for a key that nobody gives.

    Raises:
        ConfigError: a key that there is not, or a value that is none of its kind.
    """
    for key, value in values.items():
        if key not in KEYS:
            raise ConfigError(f"there is no key {key!r:.40}{did_you_mean(key, KEYS)}")
        if value is not None:
            _check(key, value)
    given = {key: _UNSAID[key] if value is None else value for key, value in values.items()}
    return replace(default, **given)  # type: ignore[arg-type] # checked above


def _query(line: str, default: Query) -> Query:
    try:
        line.encode()
        values = json.loads(line, object_pairs_hook=_once_each)
    except UnicodeEncodeError:
        raise ConfigError("not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError("a point is a JSON object")
    return check_query(values, default)


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ConfigError("a key is there twice")
    return values


def _check(key: str, value: object) -> None:
    if key in _WHOLE:
        least = _LEAST.get(key, 1)
        if type(value) is not int or not least <= value <= _LARGEST:
            raise ConfigError(
                f"{key} is {value!r:.40}, but must be a whole number from {least} to {_LARGEST:,}"
            )
    elif key in {"acceptance", "tokens_per_step", "memory_limit"}:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number and not (key == "acceptance" and isinstance(value, str)):
            raise ConfigError(f"{key} is {value!r:.40}, but must be a number")
    elif not isinstance(value, str):
        raise ConfigError(f"{key} is {value!r:.40}, but must be text")
    elif value not in CHOICES.get(key, (value,)):
        raise ConfigError(f"{key} is {value!r:.40}, but must be one of {', '.join(CHOICES[key])}")


def _method(query: Query) -> str:
    if query.method is not None:
        return query.method
    return "none" if query.draft is None else "draft_target"


def _usual(query: Query) -> int:
    return 0 if query.method == "none" else DEFAULT_DRAFT_LENGTH
