"""The plots of the page as inline SVG that takes its colours and its font from the page, in light and in dark.

Run names never enter a plot (the page's own legend names them), so that no font has to know their letters. The same
runs give the same bytes.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ticket_gym.report.scoring import ScoredRun
from ticket_gym.report.tables import played_languages
from ticket_gym.report.words import load_published

MARKERS: tuple[tuple[str, str], ...] = (
    ("o", "●"),
    ("s", "■"),
    ("^", "▲"),
    ("D", "◆"),
    ("v", "▼"),
    ("*", "★"),
    ("P", "✚"),
    ("X", "✖"),
)
"""Marker of each series, for the plots and for the legend; colours follow the same order in the style sheet."""

_INK, _MUTED, _LINE, _PAPER = "#010101", "#020202", "#030303", "#040404"
_SERIES = tuple(f"#0500{number:02x}" for number in range(len(MARKERS)))
_COLOURS = {
    _INK: "currentColor",
    _MUTED: "var(--muted)",
    _LINE: "var(--line)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
"""Stand-ins that matplotlib writes, and what the page makes of them."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ticket_gym",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "figure.facecolor": "none",
    "path.simplify": False,
}
_WIDTH = 4.6


def profile_plot(runs: Sequence[ScoredRun]) -> str:
    """Language minus overall, with intervals: one group of marks a language, one mark a run."""
    languages = played_languages(runs)
    step = min(0.22, 0.72 / len(runs))

    def draw(axes: Axes) -> None:
        for number, run in enumerate(runs):
            offset = (number - (len(runs) - 1) / 2) * step
            for row, language in enumerate(languages):
                gap = run.summary.gaps.get(language)
                if gap is None:
                    continue
                colour, (marker, _) = _series(number)
                axes.plot([gap.low, gap.high], [row + offset] * 2, color=colour, linewidth=1.4, alpha=0.55)
                axes.plot([gap.value], [row + offset], marker, color=colour, markersize=5)
        axes.axvline(0, color=_MUTED, linewidth=0.9)
        axes.set_yticks(range(len(languages)), languages)
        axes.set_ylim(len(languages) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"pass^{runs[0].summary.k} above or below the run's overall score")
        axes.tick_params(axis="y", length=0, labelcolor=_INK)
        axes.spines["left"].set_visible(False)

    return _render("profile", draw, height=max(2.4, len(languages) * max(0.42, 0.14 * len(runs)) + 0.7))


def size_plot(runs: Sequence[ScoredRun], families: Sequence[str]) -> str:
    """Score against model size, one line a family; published scores as hollow marks."""

    def draw(axes: Axes) -> None:
        _draw_published(axes)
        for number, family in enumerate(families):
            members = _members(runs, family)
            colour, (marker, _) = _series(number)
            scores = [run.summary.overall.total.headline for run in members]
            sizes = [_size(run) for run in members]
            values = [score.value for score in scores]
            axes.plot(sizes, values, f"{marker}-", color=colour, linewidth=1.3, markersize=6)
            for size, score in zip(sizes, scores, strict=True):
                axes.plot([size] * 2, [score.low, score.high], color=colour, linewidth=1.3, alpha=0.5)
        axes.set_ylim(-0.03, 1.03)
        _scale_sizes(axes)
        axes.set_ylabel(f"pass^{runs[0].summary.k}")

    return _render("size", draw, height=3.4)


def deviation_plot(runs: Sequence[ScoredRun], families: Sequence[str]) -> str:
    """Standard deviation across languages against model size, one line a family."""

    def draw(axes: Axes) -> None:
        for number, family in enumerate(families):
            members = _members(runs, family)
            colour, (marker, _) = _series(number)
            deviations = [run.summary.deviation for run in members]
            axes.plot(
                [_size(run) for run in members], deviations, f"{marker}-", color=colour, linewidth=1.3, markersize=6
            )
        axes.set_ylim(bottom=0)
        axes.margins(y=0.12)
        _scale_sizes(axes)
        axes.set_ylabel("standard deviation across languages")

    return _render("deviation", draw, height=3.4)


def sized_families(runs: Sequence[ScoredRun]) -> list[str]:
    """The families of which some run's size is known, in the order of the runs."""
    sized = [run.config.model for run in runs if run.config.model.size_b]
    return list(dict.fromkeys(model.family or model.name for model in sized))


def _members(runs: Sequence[ScoredRun], family: str) -> list[ScoredRun]:
    members = [
        run for run in runs if run.config.model.size_b and family == (run.config.model.family or run.config.model.name)
    ]
    return sorted(members, key=_size)


def _size(run: ScoredRun) -> float:
    return run.config.model.size_b or 0.0


def _draw_published(axes: Axes) -> None:
    sized = [model for model in load_published().models if model.size_b is not None]
    for family in dict.fromkeys(model.family for model in sized):
        line = sorted((model.size_b or 0.0, model.score) for model in sized if model.family == family)
        axes.plot(*zip(*line, strict=True), color=_MUTED, linewidth=0.8, linestyle=(0, (2, 3)))
    for model in sized:
        size, score = model.size_b or 0.0, model.score
        axes.plot([size], [score], "o", color=_MUTED, markerfacecolor="none", markersize=5)
        left = size > 20
        axes.annotate(
            model.name,
            (size, score),
            xytext=(-6 if left else 6, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=7,
            color=_MUTED,
            bbox={"facecolor": _PAPER, "edgecolor": "none", "pad": 0.6},
        )


def _scale_sizes(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}B" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("parameters")


def _series(number: int) -> tuple[str, tuple[str, str]]:
    place = number % len(MARKERS)
    return _SERIES[place], MARKERS[place]


def _render(name: str, draw: Callable[[Axes], None], height: float) -> str:
    """Draw one plot, of `height` inches, and make its SVG fit to be part of a page."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = target.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) (?:width|height)="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) (?:width|height)="[^"]*"', r"\1", svg, count=1)
    # Ids must be unique on the page, and every plot has a "figure_1".
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, meaning in _COLOURS.items():
        svg = svg.replace(colour, meaning)
    return svg
