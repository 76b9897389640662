"""Train the small model and draw its learning curve: `python -m baselines.small_model`.

Everything from nothing: tokenizer, drills, imitation, reinforcement, evaluations, transfer, picture. A run that was
broken off goes on from its last checkpoint when the command is given again.
"""

import argparse
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from baselines.small_model.drawing import draw_curve
from baselines.small_model.evaluation import Journal
from baselines.small_model.network import save_network
from baselines.small_model.plan import Plan, read_plan
from baselines.small_model.tokenizer import build_tokenizer
from baselines.small_model.training import Training
from baselines.small_model.transfer import add_scripted, add_transfer

ROOT = Path(__file__).resolve().parents[1]
TRANSFER_TASKS = 10
"""Of each template and language that a trained model is tried on without having been trained on it."""


def main() -> None:
    """Train each seed, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, default=ROOT / "configs" / "small_cpu.toml", help="what to do (TOML)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--work", type=Path, default=Path("runs/small_cpu"), help="folder of the checkpoints")
    parser.add_argument("--results", type=Path, help="folder of curve and picture; the work folder by default")
    options = parser.parse_args()
    results = options.results or options.work
    plan = read_plan(options.plan)
    tokenizer = _tokenizer(plan, options.work / "tokenizer")
    curve, context = Journal(results / "learning_curve.jsonl"), Journal(results / "learning_curve_context.jsonl")
    add_scripted(context, plan)
    for seed in options.seeds:
        network = Training(plan, seed, tokenizer, options.work / f"seed{seed}", curve).run()
        save_network(network, tokenizer, options.work / f"seed{seed}" / "model", half=True)
        add_transfer(context, plan, seed, network, tokenizer, TRANSFER_TASKS)
        draw_curve(curve, context, results / "learning_curve.svg")


def _tokenizer(plan: Plan, folder: Path) -> PreTrainedTokenizerBase:
    if not folder.exists():
        build_tokenizer(plan.vocabulary_languages).save_pretrained(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer


if __name__ == "__main__":
    main()
