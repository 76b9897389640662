"""Leaderboard entries: a run's scores with what they rest on, signed by hash, and checked by scoring the run again.

The hash shows that an entry was changed after it was made, not who made it: whoever has the run can make an entry.
What makes an entry believable is that `verify` finds the same scores in the run's own episodes.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics import Estimate
from ticket_gym.report.scoring import ScoredRun, Scoring

FORMAT = "ticket_gym.entry/1"

DIGITS = 6
"""Decimals of the scores: enough for any table, few enough to be the same on every machine."""

TOLERANCE = 2e-6


def submit(run: ScoredRun) -> dict[str, Any]:
    """The leaderboard entry of a run, as JSON data.

    Args:
        run: The run, scored.

    Returns:
        Scores with intervals, counts, configuration, digests of the benchmark and of the episodes, and under `sha256`
        the hash of all that.
    """
    summary = run.summary
    entry: dict[str, Any] = {
        "format": FORMAT,
        "model": run.config.model.model_dump(mode="json"),
        "benchmark": dict(run.config.benchmark),
        "scoring": {"estimator": "paper", **asdict(run.scoring)},
        "scores": {name: _score(group.total.headline) for name, group in run.groups().items()},
        "pass_hat": {
            str(score.k): {
                name: _score(found)
                for name, found in (("paper", score.paper), ("unbiased", score.unbiased), ("pooled", score.pooled))
            }
            for score in summary.overall.total.pass_hat
        },
        "solvable": _score(summary.overall.solvable.headline) if summary.overall.solvable else None,
        "unsolvable": _score(summary.overall.unsolvable.headline) if summary.overall.unsolvable else None,
        "strict": _score(summary.overall.strict.headline),
        "deviation": round(summary.deviation, DIGITS),
        "do_nothing": round(summary.do_nothing, DIGITS),
        "counts": {**asdict(summary.overall.counts), "successes": summary.overall.total.successes},
        "causes": dict(sorted(sum(run.causes().values(), Counter[str]()).items())),
        "config": run.config.model_dump(mode="json"),
        "episodes_sha256": run.episodes_digest,
    }
    entry = json.loads(canonical_json(entry))
    return {**entry, "sha256": sign(entry)}


def verify(entry: Mapping[str, Any], run: ScoredRun) -> list[str]:
    """Score a run as its entry says it was scored, and list everything that differs; an empty list is approval.

    Args:
        entry: What `submit` made.
        run: The run that it claims to tell of.

    Raises:
        ConfigurationError: It is no entry of a format that is known here.
    """
    if entry.get("format") != FORMAT:
        raise ConfigurationError(f"entry: its format is {entry.get('format')!r}, not {FORMAT!r}")
    unsigned = {key: value for key, value in entry.items() if key != "sha256"}
    problems = []
    if entry.get("sha256") != sign(unsigned):
        problems.append("sha256: the entry was changed after it was signed")
    again = submit(run.rescored(_scoring(entry)))
    del again["sha256"]
    return problems + list(_differences("", unsigned, again))


def canonical_json(data: Mapping[str, Any]) -> str:
    """The one way of writing data that hashes are made over: sorted keys, no spaces, literal UTF-8.

    Raises:
        ConfigurationError: It holds something that JSON has no word for.
    """
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"entry: {error}") from error


def sign(unsigned: Mapping[str, Any]) -> str:
    """SHA-256 of an entry without its `sha256`."""
    return hashlib.sha256(canonical_json(unsigned).encode("utf-8", "surrogatepass")).hexdigest()


def _scoring(entry: Mapping[str, Any]) -> Scoring:
    """How the entry's scores were made."""
    claimed = entry.get("scoring")
    try:
        options = dict(claimed or {})
        options.pop("estimator", None)
        scoring = Scoring(**options)
        wrong = [name for name, value in asdict(Scoring()).items() if type(options[name]) is not type(value)]
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(f"entry: scoring cannot be read: {claimed!r}") from error
    if wrong:
        raise ConfigurationError(f"entry: scoring.{wrong[0]} cannot be {options[wrong[0]]!r}")
    return scoring


def _score(found: Estimate | None) -> dict[str, float] | None:
    return None if found is None else {name: round(value, DIGITS) for name, value in asdict(found).items()}


def _differences(place: str, claimed: Any, found: Any) -> Iterator[str]:
    if isinstance(claimed, Mapping) and isinstance(found, Mapping):
        for key in sorted({*claimed, *found}):
            inner = f"{place}.{key}" if place else str(key)
            yield from _differences(inner, claimed.get(key), found.get(key))
    elif not _same(claimed, found):
        yield f"{place}: the entry says {claimed!r}, the run {found!r}"


def _same(claimed: Any, found: Any) -> bool:
    if isinstance(claimed, float) and isinstance(found, float):
        return math.isclose(claimed, found, rel_tol=0.0, abs_tol=TOLERANCE)
    return type(claimed) is type(found) and bool(claimed == found)
