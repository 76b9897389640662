"""A small transformer in plain PyTorch: Qwen3's architecture and parameter names, so that `transformers` loads it.

All episodes of a language begin with the same system prompt and tool schemas, longer than most episodes. Here that
prefix is read once for a whole batch, in training with its gradient, which saves more than half of the work.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedTokenizerBase, Qwen3Config

KeysAndValues = tuple[Tensor, Tensor]
"""Of one layer, each of shape (batch, heads, positions, head size)."""

Memory = list[KeysAndValues]
"""Keys and values of each layer."""


ROPE_THETA = 10000.0
EPSILON = 1e-6
DEVIATION = 0.02
"""Of the initial weights."""
COPYING = 0.4
"""Square root of the weight with which attention first copies: a token attended to alone about doubles the stream."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a network; `heads` times `head_size` need not be the width."""

    layers: int = 4
    width: int = 192
    heads: int = 4
    head_size: int = 32
    inner: int = 512


class Attention(nn.Module):
    """Attention with normalised queries and keys and rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        attended = shape.heads * shape.head_size
        self.heads, self.head_size = shape.heads, shape.head_size
        self.q_proj = nn.Linear(shape.width, attended, bias=False)
        self.k_proj = nn.Linear(shape.width, attended, bias=False)
        self.v_proj = nn.Linear(shape.width, attended, bias=False)
        self.o_proj = nn.Linear(attended, shape.width, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_size, eps=EPSILON)
        self.k_norm = nn.RMSNorm(shape.head_size, eps=EPSILON)

    def keys_and_values(self, normed: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What later positions attend to: (batch, heads, positions, head size) each."""
        return _rotate(self.k_norm(self._split(self.k_proj(normed))), positions), self._split(self.v_proj(normed))

    def forward(
        self,
        normed: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        prefix: KeysAndValues | None = None,
    ) -> Tensor:
        """What is gathered at each position, (batch, positions, width); all may attend to the prefix."""
        queries = _rotate(self.q_norm(self._split(self.q_proj(normed))), positions)
        if prefix is None:
            attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        else:
            attended = _attend_behind(prefix, queries, keys, values, mask)
        gathered: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return gathered

    def _split(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:2], self.heads, self.head_size).transpose(1, 2)


class FeedForward(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, normed: Tensor) -> Tensor:
        """Each position by itself, (batch, positions, width)."""
        computed: Tensor = self.down_proj(functional.silu(self.gate_proj(normed)) * self.up_proj(normed))
        return computed


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a normalisation and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.mlp = FeedForward(shape)

    def keys_and_values(self, stream: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What later positions attend to: (batch, heads, positions, head size) each."""
        return self.self_attn.keys_and_values(self.input_layernorm(stream), positions)

    def forward(
        self,
        stream: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        prefix: KeysAndValues | None = None,
    ) -> Tensor:
        """The stream after this block, given all keys and values and who may attend to what."""
        stream = stream + self.self_attn(self.input_layernorm(stream), positions, keys, values, mask, prefix)
        added: Tensor = stream + self.mlp(self.post_attention_layernorm(stream))
        return added


class Network(nn.Module):
    """Token ids in, hidden states out; `logits` turns those into scores of the next token."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=EPSILON)
        self._initialise()

    def _initialise(self) -> None:
        """Random weights, but attention begins by copying: values and outputs multiply to a multiple of a projection.

        After Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers" (2023). Embeddings have length 1,
        so that a token that is copied into the stream is also a confident prediction of it.
        """
        width = self.shape.width
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=DEVIATION)
        nn.init.normal_(self.embed_tokens.weight, std=width**-0.5)
        for block in self.blocks:
            values, outputs = block.self_attn.v_proj.weight, block.self_attn.o_proj.weight
            nn.init.orthogonal_(values, gain=COPYING)
            outputs.data = values.data.T.contiguous()
            nn.init.normal_(block.mlp.down_proj.weight, std=DEVIATION / (2 * self.shape.layers) ** 0.5)

    @property
    def blocks(self) -> list[Block]:
        """The layers, first to last."""
        return cast(list[Block], list(self.layers))

    def read(self, ids: Tensor, before: Memory | None = None, wanted: Tensor | None = None) -> tuple[Tensor, Memory]:
        """Read tokens that follow a prefix.

        Args:
            ids: Tokens, (batch, positions); padding belongs at the end, where nothing looks at it.
            before: What `read` gave for the prefix alone, of batch size 1; None at the beginning.
            wanted: (batch, any number) places in `ids` whose hidden states are wanted; None for all. The last block
                is only computed there.

        Returns:
            Hidden states (batch, places, width), and keys and values of these tokens without the prefix's.
        """
        offset = 0 if before is None else before[0][0].shape[2]
        length = ids.shape[1]
        positions = torch.arange(offset, offset + length)
        mask = _as_bias(torch.ones(length, length, dtype=torch.bool).tril())
        stream = self.embed_tokens(ids)
        memory: Memory = []
        for number, block in enumerate(self.blocks):
            keys, values = block.keys_and_values(stream, positions)
            memory.append((keys, values))
            if wanted is not None and number == len(self.layers) - 1:
                stream = stream.gather(1, wanted.unsqueeze(-1).expand(-1, -1, stream.shape[2]))
                positions, mask = positions[wanted].unsqueeze(1), mask[wanted].unsqueeze(1)
            stream = block(stream, positions, keys, values, mask, None if before is None else before[number])
        hidden: Tensor = self.norm(stream)
        return hidden, memory

    def extend(
        self, ids: Tensor, starts: Tensor, prefix: Memory, buffers: Memory, rows: Tensor | None = None
    ) -> Tensor:
        """Read the next tokens of conversations of different lengths, adding to their memory in place.

        Args:
            ids: Tokens, (batch, positions), padded at the end; padding is overwritten by what follows.
            starts: (batch,) place of each row's first token, counted from the end of the prefix.
            prefix: What `read` gave for the tokens before every conversation, of batch size 1.
            buffers: Keys and values since the prefix, with room for these tokens and one more.
            rows: (batch,) which rows of the buffers these are; None for all of them.

        Returns:
            Hidden states (batch, positions, width).
        """
        places = starts.unsqueeze(1) + torch.arange(ids.shape[1])
        positions = (prefix[0][0].shape[2] + places).unsqueeze(1)
        # Padding that would fall behind the end is kept in the last place, which no conversation uses.
        last = buffers[0][0].shape[2] - 1
        slots = places.clamp(max=last)
        end = min(int(places[:, -1].max()), last) + 1
        mask = _as_bias(torch.arange(end) <= places.unsqueeze(-1)).unsqueeze(1)
        chosen = torch.arange(len(ids)) if rows is None else rows
        stream = self.embed_tokens(ids)
        for block, before, (all_keys, all_values) in zip(self.blocks, prefix, buffers, strict=True):
            keys, values = block.keys_and_values(stream, positions)
            all_keys[chosen.unsqueeze(1), :, slots] = keys.transpose(1, 2)
            all_values[chosen.unsqueeze(1), :, slots] = values.transpose(1, 2)
            keys, values = all_keys[:, :, :end], all_values[:, :, :end]
            if rows is not None:
                keys, values = keys[rows], values[rows]
            stream = block(stream, positions, keys, values, mask, before)
        hidden: Tensor = self.norm(stream)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token; the output layer is the embedding."""
        return functional.linear(hidden, self.embed_tokens.weight)


def _attend_behind(prefix: KeysAndValues, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention to a prefix that all rows share and to each row's own keys.

    Where a row has one query, the prefix is read once for the whole batch and not once for each row, which is most of
    what writing a token costs (Juravsky et al. 2024, "Hydragen"). With many queries the copies cost less than the
    scores that they save.

    Args:
        prefix: Keys and values, (1, heads, prefix positions, head size).
        queries: (batch, heads, positions, head size).
        keys: (batch, heads, own positions, head size).
        values: Of the same shape.
        mask: Added to the scores of the own keys, (batch, 1, positions, own positions).
    """
    batch, _, length, size = queries.shape
    prefix_length = prefix[0].shape[2]
    if length > 1:
        keys, values = (
            torch.cat([shared.expand(batch, -1, -1, -1), own], dim=2)
            for shared, own in zip(prefix, (keys, values), strict=True)
        )
        mask = functional.pad(mask, (prefix_length, 0))
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    scaled = queries / size**0.5
    to_prefix = scaled[:, :, 0].transpose(0, 1) @ prefix[0][0].transpose(1, 2)
    to_own = scaled @ keys.transpose(2, 3) + mask
    weights = torch.cat([to_prefix.transpose(0, 1).unsqueeze(2), to_own], dim=-1).softmax(-1)
    from_prefix = weights[:, :, 0, :prefix_length].transpose(0, 1) @ prefix[1][0]
    return from_prefix.transpose(0, 1).unsqueeze(2) + weights[..., prefix_length:] @ values


def _as_bias(allowed: Tensor) -> Tensor:
    """A mask to be added to the scores, which the attention on a CPU handles faster than truth values."""
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))


def _rotate(vectors: Tensor, positions: Tensor) -> Tensor:
    """Apply the rotary position code (Su et al. 2021) to the last dimension."""
    size = vectors.shape[-1]
    frequencies = ROPE_THETA ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    turns = positions.unsqueeze(-1).float() * frequencies
    cosine, sine = turns.cos(), turns.sin()
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def save_network(network: Network, tokenizer: PreTrainedTokenizerBase, folder: Path, *, half: bool = False) -> None:
    """Write a folder that `AutoModelForCausalLM` and `AutoTokenizer` load.

    Args:
        network: The weights.
        tokenizer: Saved beside them, with its chat template.
        folder: Made if it is missing.
        half: Store 16-bit weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = network.shape
    kind = torch.float16 if half else torch.float32
    config = Qwen3Config(
        vocab_size=network.embed_tokens.num_embeddings,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.head_size,
        rms_norm_eps=EPSILON,
        max_position_embeddings=tokenizer.model_max_length,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float16" if half else "float32",
    )
    config.save_pretrained(folder)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    GenerationConfig(do_sample=False, max_new_tokens=64, **ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {f"model.{name}": value.detach().to(kind).contiguous() for name, value in network.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load_network(folder: Path) -> Network:
    """Read what `save_network` wrote, as 32-bit weights."""
    config = Qwen3Config.from_pretrained(folder)
    shape = Shape(
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.head_dim,
        config.intermediate_size,
    )
    network = Network(config.vocab_size, shape)
    weights = load_file(folder / "model.safetensors")
    network.load_state_dict({name.removeprefix("model."): value.float() for name, value in weights.items()})
    return network
