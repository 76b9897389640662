"""More tables: why episodes failed, and what differs between languages and between runs."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics import RunComparison, adjust_p_values, compare_runs
from ticket_gym.report.scoring import ScoredRun
from ticket_gym.report.tables import MINUS, NONE, Cell, Table, count, difference, fraction, percent, played_languages
from ticket_gym.report.words import CAUSES, load_words
from ticket_gym.tasks import TEMPLATES


def causes_table(runs: Sequence[ScoredRun]) -> Table:
    """How many failures have which primary cause."""
    words = load_words().causes
    totals = {run.label: sum(run.causes().values(), Counter[str]()) for run in runs}
    rows = []
    for cause in CAUSES:
        if not any(total[cause] for total in totals.values()):
            continue
        cells = [
            Cell(f"{total[cause]:,}", (f"{percent(total[cause] / total.total())}%",)) if total[cause] else NONE
            for total in totals.values()
        ]
        rows.append((Cell(words[cause].name), Cell(words[cause].meaning, tone="muted"), *cells))
    return Table(
        "causes",
        "Why episodes failed",
        ("Cause", "Meaning", *totals),
        tuple(rows),
        "Each failed episode is counted once, under its primary cause; beneath, the share of all failures."
        if rows
        else "No episode failed.",
        labels=2,
    )


def confusion_table(run: ScoredRun) -> Table:
    """Failures by template and constraint category."""
    words = load_words()
    by_template = run.causes()
    groups = {
        template: Counter[str](
            {
                group: sum(number for cause, number in causes.items() if words.causes[cause].group == group)
                for group in words.groups
            }
        )
        for template, causes in by_template.items()
    }
    columns = [
        group
        for place, group in enumerate(words.groups)
        if place < 5 or any(counts[group] for counts in groups.values())
    ]
    played = Counter(query.template for query in run.outcomes.grid.queries)
    each = len(run.config.languages) * run.config.trials
    rows = [
        (
            Cell(template),
            Cell(" ".join(TEMPLATES[template].categories), tone="muted"),
            *(count(counts[group]) if counts[group] else NONE for group in columns),
            count(counts.total(), "strong"),
            count(played[template] * each, "muted"),
        )
        for template, counts in sorted(groups.items())
    ]
    return Table(
        "confusion",
        "Failures by template and constraint",
        ("Template", "Combines", *(_head(group) for group in columns), "Failed", "of"),
        tuple(rows),
        "S half of the year, W days of the week, P price, L city, B leaderboard: the constraint that the primary cause "
        "violates. Team: not the user's team. Amount: too many, too few or none. Ending: stopped before an answer.",
        labels=2,
    )


def template_causes_table(run: ScoredRun) -> Table:
    """Failures by template and cause."""
    words, by_template = load_words().causes, run.causes()
    columns = [cause for cause in CAUSES if any(counts[cause] for counts in by_template.values())]
    rows = [
        (Cell(template), *(count(counts[cause]) if counts[cause] else NONE for cause in columns))
        for template, counts in sorted(by_template.items())
    ]
    return Table(
        "template_causes",
        "Failures by template and cause",
        ("Template", *(words[cause].name for cause in columns)),
        tuple(rows),
        "" if columns else "No episode failed.",
    )


def templates_table(run: ScoredRun) -> Table:
    """The headline score by template and language."""
    words = load_words().templates
    languages = played_languages([run])
    rows = [
        (
            Cell(template),
            Cell(words[template], tone="muted"),
            *(Cell(fraction(score.languages[language])) for language in languages),
            Cell(fraction(score.overall), tone="strong"),
        )
        for template, score in run.summary.templates.items()
    ]
    return Table(
        "templates",
        f"pass^{run.summary.k} by template",
        ("Template", "Asks for", *languages, "Overall"),
        tuple(rows),
        "A template has few queries: read the pattern, not the digits.",
        labels=2,
    )


def languages_table(runs: Sequence[ScoredRun]) -> Table:
    """The languages of each run in pairs, on the same queries."""
    compared = {run.label: run.compare_languages() for run in runs}
    rows = []
    for pair in combinations(played_languages(runs), 2):
        cells = []
        for comparisons in compared.values():
            found = comparisons.get(pair)
            cells.append(NONE if found is None else _compared(difference(found.difference), found.p_adjusted))
        rows.append((Cell(f"{pair[0]} {MINUS} {pair[1]}"), *cells))
    return Table(
        "languages",
        "Languages compared in pairs",
        ("Pair", *compared),
        tuple(rows),
        f"Differences of pass^{runs[0].summary.k} on the same queries, with the interval and the p-value of a "
        "permutation test, corrected for the number of pairs (Holm); the intervals are not corrected.",
    )


def compare_all_runs(runs: Sequence[ScoredRun]) -> list[tuple[ScoredRun, ScoredRun, RunComparison | str]]:
    """Every pair of runs on the same queries, or the reason why a pair cannot be compared."""
    compared: list[tuple[ScoredRun, ScoredRun, RunComparison | str]] = []
    for first, second in combinations(runs, 2):
        how = first.scoring
        try:
            found: RunComparison | str = compare_runs(
                first.outcomes,
                second.outcomes,
                k=how.k,
                confidence=how.confidence,
                resamples=how.resamples,
                seed=how.seed,
            )
        except ConfigurationError as problem:
            found = str(problem)
        compared.append((first, second, found))
    return compared


def runs_table(runs: Sequence[ScoredRun], *, by_language: bool = True) -> Table:
    """The runs in pairs, overall and, where wanted, in each language."""
    languages = played_languages(runs) if by_language else ()
    compared = compare_all_runs(runs)
    overall = [found.overall.p_value for _, _, found in compared if isinstance(found, RunComparison)]
    adjusted = iter(adjust_p_values(overall))
    rows, reasons = [], []
    for first, second, found in compared:
        label = Cell(f"{first.label} {MINUS} {second.label}")
        if isinstance(found, str):
            rows.append((label, *(NONE for _ in (*languages, "all"))))
            reasons.append(f"{label.text}: {found}.")
            continue
        cells = [
            _compared(difference(each.difference), each.p_adjusted) if (each := found.languages.get(language)) else NONE
            for language in languages
        ]
        rows.append((label, *cells, _compared(difference(found.overall.difference), next(adjusted))))
    corrected = "overall for the number of pairs" + (", a language for the number of languages" if languages else "")
    note = (
        f"Differences of pass^{runs[0].summary.k} on the same queries, with the interval and the p-value of a "
        f"permutation test, corrected (Holm): {corrected}. The intervals are not corrected."
    )
    return Table(
        "runs",
        "Runs compared in pairs",
        ("Pair", *languages, "Overall"),
        tuple(rows),
        " ".join([note, *reasons]),
    )


def _compared(cell: Cell, p_value: float) -> Cell:
    text = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    return Cell(cell.text, (*cell.details, text), "strong" if p_value < 0.05 else "")


def _head(group: str) -> str:
    return group if len(group) == 1 else load_words().groups[group].capitalize()
