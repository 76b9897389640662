"""The tables of a report, once, for the terminal, Markdown and HTML alike: scores and what must stand beside them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ticket_gym.metrics import Cost, Estimate
from ticket_gym.report.scoring import ScoredRun
from ticket_gym.types import LANGUAGES, RESPOND, TOOLS, Language, StopReason

Tone = Literal["", "muted", "strong", "bad"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: What it says.
        details: What stands smaller beneath or behind, such as an interval.
        tone: How it is to be read.
    """

    text: str
    details: tuple[str, ...] = ()
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table ready to be set.

    Attributes:
        name: Short key.
        title: Heading.
        columns: Column heads.
        rows: As many cells each as there are columns.
        note: What a reader must know.
        labels: How many leading columns hold text rather than figures.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    labels: int = 1


NONE = Cell("–", tone="muted")
UNKNOWN = Cell("unknown", tone="muted")
MINUS = "\N{MINUS SIGN}"


def percent(value: float) -> str:
    """A fraction as percent with one digit."""
    return f"{100 * value:.1f}"


def fraction(value: float) -> str:
    """A score from 0 to 1."""
    return f"{value:.3f}"


def signed(value: float) -> str:
    """A difference of scores, with its sign."""
    return f"{value:+z.3f}".replace("-", MINUS)


def estimate(score: Estimate | None, tone: Tone = "") -> Cell:
    """A score with its interval."""
    if score is None:
        return NONE
    return Cell(fraction(score.value), (limits(score),), tone)


def limits(score: Estimate) -> str:
    """The interval of a score, narrow enough for eight in a row of a terminal."""
    return f"{fraction(score.low)}–{fraction(score.high)}".replace("0.", ".").replace("1.000", "1")


def difference(score: Estimate) -> Cell:
    """A difference of scores with its interval."""
    return Cell(signed(score.value), (f"{signed(score.low)} to", signed(score.high)))


def count(number: int, tone: Tone = "") -> Cell:
    """A number of things."""
    return Cell(f"{number:,}", tone=tone)


def played_languages(runs: Iterable[ScoredRun]) -> tuple[Language, ...]:
    """The languages of all runs together, in the paper's order."""
    played = {language for run in runs for language in run.config.languages}
    return tuple(language for language in LANGUAGES if language in played)


def scores_table(runs: Sequence[ScoredRun]) -> Table:
    """The paper's table: runs as rows, languages and overall as columns."""
    languages, first = played_languages(runs), runs[0].summary
    rows = [
        (
            Cell(run.label),
            *(
                estimate(run.summary.languages[language].total.headline) if language in run.summary.languages else NONE
                for language in languages
            ),
            estimate(run.summary.overall.total.headline, "strong"),
        )
        for run in runs
    ]
    idle = {fraction(run.summary.do_nothing) for run in runs}
    for text in sorted(idle):
        rows.append((Cell("doing nothing", tone="muted"), *(Cell(text, tone="muted") for _ in (*languages, "all"))))
    resampled = "queries within their templates" if runs[0].scoring.stratify else "queries"
    return Table(
        "scores",
        f"pass^{first.k}",
        ("Run", *languages, "Overall"),
        tuple(rows),
        f"With {100 * first.confidence:g}% intervals from a bootstrap over {resampled}. Missing episodes and "
        "engine errors count as failures. Overall is the mean of the languages. Doing nothing is right wherever "
        "nothing should be bought.",
    )


def parts_table(runs: Sequence[ScoredRun]) -> Table:
    """Solvable and unsolvable queries, the strict score, and the spread across languages."""
    rows = [
        (
            Cell(run.label),
            estimate(group.solvable.headline if group.solvable else None),
            estimate(group.unsolvable.headline if group.unsolvable else None),
            estimate(group.strict.headline),
            Cell(fraction(run.summary.deviation)),
        )
        for run in runs
        for group in [run.summary.overall]
    ]
    return Table(
        "parts",
        f"Parts of pass^{runs[0].summary.k}",
        ("Run", "Solvable", "Unsolvable", "Strict", "Deviation"),
        tuple(rows),
        "Strict: a success must not have needed any call to be mended. Deviation: standard deviation across languages.",
    )


def estimators_table(runs: Sequence[ScoredRun]) -> Table:
    """pass^1 to pass^k by the three estimators."""
    rows = []
    for run in runs:
        scores = run.summary.overall.total.pass_hat
        for name, label in (("paper", "paper"), ("unbiased", "unbiased"), ("pooled", "pooled")):
            rows.append((Cell(run.label), Cell(label), *(estimate(getattr(score, name)) for score in scores)))
    return Table(
        "estimators",
        "Three estimators of pass^k",
        ("Run", "Estimator", *(f"k = {score.k}" for score in runs[0].summary.overall.total.pass_hat)),
        tuple(rows),
        "Overall. With c successes in M trials of each of N queries: paper, the mean of (c/M)^k, which is "
        "what all other tables show; unbiased, the mean of C(c,k)/C(M,k); pooled, (mean of c/M)^k.",
        labels=2,
    )


def profile_table(runs: Sequence[ScoredRun]) -> Table:
    """Each language minus the run's overall score."""
    languages = played_languages(runs)
    rows = [
        (
            Cell(run.label),
            *(difference(run.summary.gaps[each]) if each in run.summary.gaps else NONE for each in languages),
        )
        for run in runs
    ]
    return Table(
        "profile",
        "Language minus overall",
        ("Run", *languages),
        tuple(rows),
        f"Differences of pass^{runs[0].summary.k}, with intervals.",
    )


def episodes_table(runs: Sequence[ScoredRun]) -> Table:
    """What was declared, what was recorded, and how episodes ended."""
    reasons = [
        reason
        for reason in StopReason
        if reason is not StopReason.ENGINE_ERROR
        and any(run.summary.overall.counts.stop_reasons[reason] for run in runs)
    ]
    rows = []
    for run in runs:
        counts = run.summary.overall.counts
        rows.append(
            (
                Cell(run.label),
                count(counts.expected),
                count(counts.present),
                count(counts.missing, "bad" if counts.missing else ""),
                count(counts.engine_error, "bad" if counts.engine_error else ""),
                count(run.summary.overall.total.successes),
                *(count(counts.stop_reasons[reason]) for reason in reasons),
            )
        )
    ended = tuple(reason.value.replace("_", " ") for reason in reasons)
    return Table(
        "episodes",
        "Episodes",
        ("Run", "Expected", "Recorded", "Missing", "Engine errors", "Successes", *ended),
        tuple(rows),
    )


def effort_table(runs: Sequence[ScoredRun]) -> Table:
    """Steps, tokens and time of an episode."""
    names = (
        "steps",
        "model_calls",
        "prompt_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "cached_tokens",
        "wall_s",
    )
    rows = [
        (
            Cell(run.label),
            *(NONE if effort is None else Cell(f"{getattr(effort, name):,.1f}") for name in names),
        )
        for run in runs
        for effort in [run.summary.overall.effort]
    ]
    return Table(
        "effort",
        "Effort per episode",
        ("Run", "Steps", "Model calls", "Prompt", "Completion", "Reasoning", "Cached", "Seconds"),
        tuple(rows),
        "Means over the episodes that were played; prompt to cached are tokens.",
    )


def costs_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Tokens by kind and what they cost; no table where no prices were given."""
    costs = [(run, run.cost) for run in runs if run.cost is not None]
    if not costs:
        return []
    kinds = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
    rows = [
        (
            Cell(run.label),
            *(UNKNOWN if cost.usage is None else count(getattr(cost.usage, kind)) for kind in kinds),
            *(_usd(cost, value) for value in (cost.usd, cost.usd_per_episode, cost.usd_per_success)),
        )
        for run, cost in costs
    ]
    heads = ("Run", "Prompt", "Cached", "Completion", "Reasoning", "USD", "/ episode", "/ success")
    note = " ".join(
        [
            "Over all recorded episodes, engine errors too; tries that failed or were played again are not in it. "
            "Cached tokens are part of the prompt, reasoning of the completion.",
            *(gap for run, cost in costs for gap in _cost_gaps(run, cost)),
        ]
    )
    return [Table("costs", "Tokens and cost", heads, tuple(rows), note)]


def _cost_gaps(run: ScoredRun, cost: Cost) -> Iterator[str]:
    """Why a run has no cost."""
    if cost.prices is None:
        yield f"{run.label}: no cost, for the price table has no {' and no '.join(map(repr, cost.names))}."
    if cost.uncounted:
        recorded = run.summary.overall.counts.present
        yield f"{run.label}: no token counts for {cost.uncounted:,} of {recorded:,} episodes, so the sums are unknown."


def _usd(cost: Cost, value: float | None) -> Cell:
    if cost.prices is None:
        return NONE
    if cost.usd is None:
        return UNKNOWN
    if value is None:
        return Cell("none", tone="muted")
    return Cell(f"{value:,.{2 if value >= 100 else 4 if value >= 1 else 6}f}")


def tools_table(run: ScoredRun) -> Table:
    """Calls and errors per tool of one run."""
    used = run.summary.overall.tools
    names = [tool for tool in (*TOOLS, RESPOND, "unknown") if tool in used]
    rows = [
        (
            Cell(tool),
            count(used[tool].calls),
            count(used[tool].errors, "" if used[tool].errors else "muted"),
            Cell(percent(used[tool].errors / used[tool].calls), tone="" if used[tool].errors else "muted"),
            count(used[tool].repaired, "" if used[tool].repaired else "muted"),
        )
        for tool in names
    ]
    codes = run.summary.overall.error_codes
    told = ", ".join(f"{code} {number:,}" for code, number in sorted(codes.items(), key=lambda item: -item[1]))
    return Table(
        "tools",
        "Calls per tool",
        ("Tool", "Calls", "Errors", "Errors %", "Mended"),
        tuple(rows),
        f"Errors by code: {told}." if told else "No call was answered by an error.",
    )
