"""The report as one self-contained page: no network, nothing to install, everything escaped."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ticket_gym.report.conversations import collect_pages
from ticket_gym.report.files import write_text
from ticket_gym.report.findings import causes_table, confusion_table, languages_table, runs_table, template_causes_table
from ticket_gym.report.plots import MARKERS, deviation_plot, profile_plot, size_plot, sized_families
from ticket_gym.report.scoring import ScoredRun
from ticket_gym.report.tables import (
    Table,
    costs_tables,
    effort_table,
    episodes_table,
    estimators_table,
    parts_table,
    profile_table,
    scores_table,
    tools_table,
)
from ticket_gym.report.words import CAUSES, FOLDER, load_published, load_words, read_asset

DEEP = 0.62
"""From this share on a heat map's cell is so dark that its figure must be light."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its caption and the names of its series."""

    title: str
    svg: Markup
    caption: str
    series: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A share, the language that clicking it filters by, and whether its figure must be light."""

    language: str
    value: float
    text: str
    deep: bool


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One template of the heat map."""

    template: str
    meaning: str
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True)
class CauseBar:
    """One cause of failure: how many, and its share of all failures."""

    cause: str
    name: str
    meaning: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class RunPart:
    """What is shown of one run alone."""

    label: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    heat: tuple[HeatRow, ...]
    causes: tuple[CauseBar, ...]
    tables: tuple[Table, ...]
    by_cause: Table
    config: str


def write_html(runs: Sequence[ScoredRun], path: str | Path, *, conversations: bool = True) -> None:
    """Write the report as one HTML page.

    Args:
        runs: What `load_runs` gave.
        path: The file.
        conversations: Whether to put all conversations in. They make up most of the page's size: about 1 MB for three
            trials of the benchmark by a scripted agent, more where a model writes much.

    Raises:
        RunWriteError: The file cannot be written.
    """
    write_text(path, render_html(runs, conversations=conversations))


def render_html(runs: Sequence[ScoredRun], *, conversations: bool = True) -> str:
    """The report as one HTML page; see `write_html`. The same runs give the same page."""
    script, style = (read_asset(FOLDER / name) for name in ("page.js", "page.css"))
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        k=runs[0].summary.k,
        benchmark=runs[0].config.benchmark,
        split=runs[0].config.split,
        runs=[_run_part(run) for run in runs],
        scores=scores_table(runs),
        tables=_tables(runs),
        plots=_plots(runs),
        markers=[glyph for _, glyph in MARKERS],
        published=load_published(),
        pages=_embed(collect_pages(runs)) if conversations else None,
        # The hash is made over exactly what stands between the tags.
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup(style),
    )


def _embed(pages: dict[str, str]) -> Markup:
    """Pages as JSON that cannot end the element it stands in."""
    text = json.dumps({"encoding": "gzip+base64", "pages": pages})
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _tables(runs: Sequence[ScoredRun]) -> list[Table]:
    tables = [runs_table(runs)] if len(runs) > 1 else []
    tables += [make(runs) for make in (parts_table, estimators_table, episodes_table, effort_table)]
    if any(len(run.config.languages) > 1 for run in runs):
        tables += [profile_table(runs), languages_table(runs)]
    return [*tables, causes_table(runs), *costs_tables(runs)]


def _plots(runs: Sequence[ScoredRun]) -> list[Plot]:
    plots = []
    if any(len(run.config.languages) > 1 for run in runs):
        plots.append(
            Plot(
                "Language profile",
                Markup(profile_plot(runs)),
                "Language minus the run's overall score, with intervals.",
                tuple(run.label for run in runs),
            )
        )
    if families := sized_families(runs):
        published = load_published()
        plots.append(
            Plot(
                "Score and model size",
                Markup(size_plot(runs, families)),
                f"Hollow marks: published {published.metric} scores. {published.caution}",
                tuple(families),
            )
        )
        plots.append(
            Plot(
                "Deviation and model size",
                Markup(deviation_plot(runs, families)),
                "Standard deviation of the score across languages: low means that a model serves all languages alike.",
                tuple(families),
            )
        )
    return plots


def _run_part(run: ScoredRun) -> RunPart:
    config, counts = run.config, run.summary.overall.counts
    facts = (
        ("Episodes", f"{counts.present:,} of {counts.expected:,}"),
        ("Trials", str(config.trials)),
        ("Step limit", str(config.max_steps)),
        ("Answer required", "yes" if config.require_response else "no"),
        ("Tools in", config.tool_language or "the request's language"),
        ("League", config.league or "the request's"),
        ("Episodes file", f"sha256 {run.episodes_digest[:12]}"),
    )
    tables = (confusion_table(run), tools_table(run))
    shown = json.dumps(config.model_dump(mode="json", exclude={"queries"}), ensure_ascii=False, indent=2)
    return RunPart(run.label, run.warnings, facts, _heat(run), _causes(run), tables, template_causes_table(run), shown)


def _heat(run: ScoredRun) -> tuple[HeatRow, ...]:
    meanings = load_words().templates
    return tuple(
        HeatRow(
            template,
            meanings[template],
            tuple(
                HeatCell(language, round(value, 4), f"{value:.2f}", value >= DEEP)
                for language, value in (*score.languages.items(), ("", score.overall))
            ),
        )
        for template, score in run.summary.templates.items()
    )


def _causes(run: ScoredRun) -> tuple[CauseBar, ...]:
    words = load_words().causes
    totals = sum(run.causes().values(), Counter[str]())
    return tuple(
        CauseBar(cause, words[cause].name, words[cause].meaning, totals[cause], totals[cause] / totals.total())
        for cause in sorted(CAUSES, key=lambda cause: -totals[cause])
        if totals[cause]
    )
