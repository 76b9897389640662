"""The learning curve as a picture: `python -m baselines.small_model.drawing`."""

import argparse
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes

from baselines.small_model.evaluation import Journal, Line

RESULTS = Path(__file__).resolve().parents[1] / "results"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Okabe and Ito's colours, which the colour-blind can tell apart."""


def draw_curve(curve: Journal, context: Journal, path: Path) -> None:
    """Draw the score of each seed over the time of its training.

    Args:
        curve: Evaluations of the training runs.
        context: Scores of agents without a model on the same tasks.
        path: Picture to be written; its ending decides the format.
    """
    matplotlib.rcParams["svg.hashsalt"] = "learning curve"
    figure, axes = pyplot.subplots(figsize=(8, 4.6), layout="constrained")
    seeds = sorted({line["seed"] for line in curve.lines})
    for colour, seed in zip(COLOURS, seeds, strict=False):
        _draw_seed(axes, [line for line in curve.lines if line["seed"] == seed], seed, colour)
    for line in context.lines:
        if line["agent"] in ("do_nothing", "oracle"):
            _draw_level(axes, line)
    tasks = curve.lines[0]["tasks"]
    templates = ", ".join(curve.lines[0]["templates"])
    axes.set(
        xlabel="minutes of training on one CPU core, evaluations included",
        ylabel="pass^1",
        ylim=(-0.03, 1.05),
        title=f"A model of 2.4 million parameters learns to buy tickets\n{tasks} held-out tasks of {templates}",
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.06), fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _draw_seed(axes: Axes, lines: list[Line], seed: int, colour: str) -> None:
    for decoding, style in (("sampled", "-"), ("greedy", "--")):
        chosen = [line for line in lines if line["decoding"] == decoding]
        minutes = [line["wall_s"] / 60 for line in chosen]
        scores = [line["pass_hat_1"] for line in chosen]
        axes.plot(minutes, scores, style, color=colour, marker="o", markersize=3, label=f"seed {seed}, {decoding}")
        if decoding == "sampled":
            lows, highs = [line["low"] for line in chosen], [line["high"] for line in chosen]
            axes.fill_between(minutes, lows, highs, color=colour, alpha=0.15, linewidth=0)
            _mark_stages(axes, chosen, colour)


def _mark_stages(axes: Axes, lines: list[Line], colour: str) -> None:
    for line in lines:
        if line["stage"] == "sft":
            axes.axvline(line["wall_s"] / 60, color=colour, linewidth=0.8, linestyle=":")
            axes.annotate(
                f"seed {line['seed']}: imitation ends,\nGRPO begins",
                (line["wall_s"] / 60, 0.96 - 0.13 * line["seed"]),
                xytext=(-4, 0),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=8,
                color=colour,
            )


def _draw_level(axes: Axes, line: Line) -> None:
    axes.axhline(line["pass_hat_1"], color="0.5", linewidth=0.8)
    axes.annotate(
        line["agent"].replace("_", " "),
        (1, line["pass_hat_1"]),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="0.35",
    )


def main() -> None:
    """Draw the curve that is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", type=Path, default=RESULTS / "learning_curve.jsonl")
    parser.add_argument("--context", type=Path, default=RESULTS / "learning_curve_context.jsonl")
    parser.add_argument("--picture", type=Path, default=RESULTS / "learning_curve.svg")
    options = parser.parse_args()
    draw_curve(Journal(options.curve), Journal(options.context), options.picture)


if __name__ == "__main__":
    main()
