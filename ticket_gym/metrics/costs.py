"""What the tokens of a run cost."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import ConfigDict, Field

from ticket_gym.metrics.outcomes import Outcomes, Tally
from ticket_gym.records import Record, Usage

UsdPerMillion = Annotated[float, Field(ge=0)]


class Prices(Record):
    """A provider's prices in USD for a million tokens.

    Attributes:
        prompt: Of prompt tokens.
        completion: Of completion tokens, reasoning included.
        cached: Of prompt tokens that were in the provider's cache; as all others where it is None.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    prompt: UsdPerMillion
    completion: UsdPerMillion
    cached: UsdPerMillion | None = None

    def cost_usd(self, usage: Usage) -> float:
        """The price of an episode or a run. Tries that failed are not in its usage, though a provider may bill them."""
        cached_price = self.prompt if self.cached is None else self.cached
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        return (fresh * self.prompt + cached * cached_price + usage.completion_tokens * self.completion) / 1e6


class Cost(Record):
    """What a run took and what that costs, over all its recorded episodes, engine errors among them.

    Attributes:
        names: Under which the model was looked for in the price table.
        prices: What was found there; None where none of the names is in it.
        uncounted: Episodes whose tokens the server did not count.
        usage: Tokens; None where any episode's are not known.
        usd: Cost; None where prices or tokens are not known.
        usd_per_episode: The same for a recorded episode; None, too, where there is none.
        usd_per_success: The same for a success; None, too, where there is none.
    """

    names: tuple[str, ...]
    prices: Prices | None
    uncounted: int
    usage: Usage | None
    usd: float | None
    usd_per_episode: float | None
    usd_per_success: float | None


def measure_cost(outcomes: Outcomes, names: Iterable[str], table: Mapping[str, Prices]) -> Cost:
    """Add up what a run took, and price it.

    Args:
        outcomes: The run.
        names: What its model is called; the first that is in the table counts.
        table: Prices by model name.
    """
    names = tuple(dict.fromkeys(names))
    total = Tally()
    for tally in outcomes.tallies:
        total.merge(tally)
    prices = next((table[name] for name in names if name in table), None)
    usage = None if total.uncounted else Usage(**total.spent)
    usd = None if prices is None or usage is None else prices.cost_usd(usage)
    return Cost(
        names=names,
        prices=prices,
        uncounted=total.uncounted,
        usage=usage,
        usd=usd,
        usd_per_episode=_share(usd, total.recorded),
        usd_per_success=_share(usd, int(outcomes.success.sum())),
    )


def _share(usd: float | None, number: int) -> float | None:
    return usd / number if usd is not None and number else None
