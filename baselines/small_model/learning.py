"""What every stage of training shares: likelihood of the model's own tokens, and the optimiser."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from baselines.small_model.conversation import Transcript
from baselines.small_model.network import Network


def own_log_probs(network: Network, prefix: Sequence[int], transcripts: Sequence[Transcript]) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the tokens that the model wrote, given everything before them.

    The prefix is read once, and its gradient flows into the same weights from every episode.

    Args:
        network: The model.
        prefix: Tokens before every episode; may be empty.
        transcripts: Episodes; no token of theirs but those in `own` is predicted.

    Returns:
        Log-probabilities (episodes, most own tokens), and a mask of the same shape: 1 for a token, 0 for padding.
    """
    ids = pad_sequence([torch.tensor(transcript.ids) for transcript in transcripts], batch_first=True)
    places = [torch.tensor(transcript.own).nonzero().squeeze(1) for transcript in transcripts]
    mask = pad_sequence([torch.ones(len(place)) for place in places], batch_first=True)
    predicted = pad_sequence(places, batch_first=True, padding_value=1)
    memory = network.read(torch.tensor([list(prefix)]))[1] if prefix else None
    hidden, _ = network.read(ids, memory, wanted=predicted - 1)
    log_probs = network.logits(hidden).log_softmax(-1)
    return log_probs.gather(2, ids.gather(1, predicted).unsqueeze(2)).squeeze(2), mask


def make_optimiser(network: Network, rate: float) -> torch.optim.AdamW:
    """AdamW without weight decay on the gains of the normalisations."""
    matrices = [parameter for parameter in network.parameters() if parameter.dim() == 2]
    gains = [parameter for parameter in network.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))


def warm_up(optimiser: torch.optim.Optimizer, rate: float, update: int, updates: int) -> None:
    """Set the rate of an update, counted from 0: it rises over the first updates and then stays."""
    for group in optimiser.param_groups:
        group["lr"] = rate * min(1.0, (update + 1) / updates)


def step(network: Network, optimiser: torch.optim.Optimizer, losses: Iterable[Tensor]) -> float:
    """One update on the sum of some losses, with the gradient's norm kept to 1; returns the sum."""
    optimiser.zero_grad()
    total = 0.0
    for loss in losses:
        torch.autograd.backward(loss)
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()
    return total
