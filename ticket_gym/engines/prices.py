"""What tokens cost."""

from dataclasses import dataclass

from ticket_gym.records import Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """A provider's prices in USD for a million tokens.

    Attributes:
        prompt: Of prompt tokens.
        completion: Of completion tokens, reasoning included.
        cached: Of prompt tokens that were in the provider's cache; as all others where it is None.
    """

    prompt: float
    completion: float
    cached: float | None = None

    def cost_usd(self, usage: Usage) -> float:
        """The price of an episode or a run. Tries that failed are not in its usage, though a provider may bill them."""
        cached_price = self.prompt if self.cached is None else self.cached
        fresh = usage.prompt_tokens - usage.cached_tokens
        total = fresh * self.prompt + usage.cached_tokens * cached_price + usage.completion_tokens * self.completion
        return total / 1e6
