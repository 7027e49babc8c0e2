"""Counter-based uniforms: every draw of a run is a pure function of what it is for.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as
easy as 1, 2, 3", the Random123 library). Its 128-bit counter holds (request, round, node, purpose)
and its 64-bit key holds the seed, so that no draw serves two purposes, a row does not depend on its
neighbours in the batch, and a seed replays on any device.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError

MAX_SEED = 2**63 - 1
MAX_COUNTER = 2**32 - 1
# A node's key (layer, parent_rank, slot) packs into one 32-bit counter word: 10 + 11 + 11 bits.
MAX_LAYER = 2**10 - 1
MAX_TOP_K = 2**11

_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Purpose(IntEnum):
    """What a uniform decides: a word of the counter, so that purposes never share a draw."""

    PROBE = 0
    ACCEPT = 1
    FINAL = 2
    AUDIT = 3


@dataclass(frozen=True, slots=True, eq=False)
class RoundUniforms:
    """All uniforms that one round can use, for every row of a batch; each in [0, 1).

    A node's key is (layer, rank of its parent in the parent's layer, slot), so a draw belongs to a
    place in the tree and not to an index after pruning. The root's children have layer 1 and parent
    rank 0.

    Attributes:
      probe: [batch, depth, top_k * num_probes] draws of the probes, indexed by (layer - 1, parent
        rank * num_probes + number of the probe).
      accept: [batch, depth, top_k, top_k] accept tests, indexed by (layer - 1, parent rank, slot).
      final: [batch] the draw of the residual or bonus token that ends the round.
    """

    probe: Float64[Tensor, "batch depth probes"]
    accept: Float64[Tensor, "batch depth top_k top_k"]
    final: Float64[Tensor, " batch"]


def check_keys(config: SpeculationConfig) -> None:
    """Refuse a scheme whose nodes have no random keys of their own.

    Raises:
      InputError: A depth or a top_k out of range.
    """
    if config.depth > MAX_LAYER or config.top_k + config.num_probes > MAX_TOP_K + 1:
        raise InputError(
            f"depth = {config.depth}, top_k = {config.top_k}, num_probes = {config.num_probes}: a "
            f"node's random key holds depth up to {MAX_LAYER} and top_k + num_probes - 1 up to "
            f"{MAX_TOP_K}"
        )


def round_uniforms(
    seed: int,
    request: Int64[Tensor, " batch"],
    round_index: Int64[Tensor, " batch"],
    config: SpeculationConfig,
    *,
    check: bool = True,
) -> RoundUniforms:
    """Make the uniforms of one round of every row.

    Args:
      seed: Key of the run, 0 <= seed < 2**63.
      request: [batch] number of each row's request, in [0, 2**32).
      round_index: [batch] number of each row's round within its request, in [0, 2**32).
      config: Its depth and top_k give the shapes.
      check: Refuse counters out of range, which waits for the device; unchecked, they count modulo
        2**32.

    Returns:
      Uniforms on the device of `request`; a row's values depend on its own counters only.

    Raises:
      InputError: A seed, counter, depth or top_k out of range.
    """
    check_keys(config)
    if check:
        _check_counter(request, "request")
        _check_counter(round_index, "round_index")
    device = request.device
    layer = torch.arange(1, config.depth + 1, device=device)[:, None, None]
    rank = torch.arange(config.top_k, device=device)[None, :, None]
    slot = torch.arange(config.top_k, device=device)[None, None, :]
    # Keys of probes need only differ from one another; these are their slots where m is fixed.
    first = min(config.num_top, config.top_k - 1)
    probe_slot = first + torch.arange(config.num_probes, device=device)[None, None, :]
    request4, round4 = request[:, None, None, None], round_index[:, None, None, None]
    return RoundUniforms(
        probe=uniforms(
            seed, request4, round4, node_key(layer, rank, probe_slot), Purpose.PROBE
        ).flatten(2),
        accept=uniforms(seed, request4, round4, node_key(layer, rank, slot), Purpose.ACCEPT),
        final=uniforms(seed, request, round_index, torch.zeros_like(request), Purpose.FINAL),
    )


def node_key(layer: Tensor, parent_rank: Tensor, slot: Tensor) -> Tensor:
    """Pack (layer, parent_rank, slot) into one 32-bit word; the arguments broadcast.

    Args:
      layer: int64 layers, 0 (the root) to MAX_LAYER.
      parent_rank: int64 ranks, 0 to MAX_TOP_K - 1.
      slot: int64 slots, 0 to MAX_TOP_K - 1.

    Returns:
      int64 words in [0, 2**32), different for different nodes.
    """
    return (layer << 22) | (parent_rank << 11) | slot


def uniforms(
    seed: int, request: Tensor, round_index: Tensor, node: Tensor, purpose: Purpose
) -> Tensor:
    """Uniforms of 53 bits in [0, 1), one for each combination of counters.

    Args:
      seed: Key, 0 <= seed < 2**63.
      request: int64 counter word; broadcasts with the next two.
      round_index: int64 counter word.
      node: int64 counter word, from `node_key`.
      purpose: Last counter word.

    Returns:
      float64 values of the broadcast shape, multiples of 2**-53, at most 1 - 2**-53.

    Raises:
      InputError: A seed out of range, or no integer (a bool is none).
    """
    # True would be seed 1, and a float would fail in the bit operations below.
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise InputError(f"seed = {seed!r}: a seed must be an integer and lie in [0, 2**63)")
    zeros = torch.zeros_like(request + round_index + node)  # of the broadcast shape
    counter = (request + zeros, round_index + zeros, node + zeros, zeros + int(purpose))
    high, low, _, _ = philox4x32(counter, (seed & _MASK32, seed >> 32))
    # 27 + 26 bits make an integer below 2**53, which float64 holds exactly; so does its scaling.
    return ((high >> 5) * 2**26 + (low >> 6)).double() * 2.0**-53


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 on int64 tensors that hold 32-bit words.

    Args:
      counter: Four int64 tensors of one shape; taken modulo 2**32.
      key: Two 32-bit words.

    Returns:
      Four int64 tensors of that shape, words in [0, 2**32).

    Source: Salmon et al. 2011, section 4.2 (Philox) and table 2 (constants).
    """
    word0, word1, word2, word3 = (word & _MASK32 for word in counter)
    key0, key1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(_MULTIPLIERS[0], word0)
        high1, low1 = _multiply(_MULTIPLIERS[1], word2)
        word0, word1, word2, word3 = high1 ^ word1 ^ key0, low1, high0 ^ word3 ^ key1, low0
        key0, key1 = (key0 + _WEYL[0]) & _MASK32, (key1 + _WEYL[1]) & _MASK32
    return word0, word1, word2, word3


def inverse_cdf(
    mass: Float64[Tensor, "*axes items"], uniform: Float64[Tensor, "*axes"]
) -> Int64[Tensor, "*axes"]:
    """Draw one item a row: the first whose running sum exceeds uniform * total.

    Args:
      mass: [..., items] masses >= 0, not necessarily normalised, in the order of the draw.
      uniform: [...] draws from [0, 1).

    Returns:
      [...] index of the drawn item; -1 for a row without mass. Never an item of mass 0: not for
      uniform = 0 with leading zeros, and not where uniform * total rounds up to the total, which
      goes to the last item that has mass.
    """
    if mass.shape[-1] == 0:
        return torch.full_like(uniform, -1, dtype=torch.int64)
    running = mass.cumsum(-1)
    positive = mass > 0
    # The second condition is not redundant: a parallel running sum need not be monotone.
    hit = (running > (uniform * running[..., -1]).unsqueeze(-1)) & positive
    index = torch.arange(mass.shape[-1], device=mass.device)
    first = torch.where(hit, index, mass.shape[-1]).amin(-1)
    last = torch.where(positive, index, -1).amax(-1)
    return torch.minimum(first, last)


def _multiply(factor: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a 32 x 32 bit product, in halves so that int64 never overflows."""
    low = factor * (word & 0xFFFF)
    high = factor * (word >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def _check_counter(counter: Tensor, name: str) -> None:
    """Refuse counters outside [0, 2**32), naming the first row."""
    bad = ((counter < 0) | (counter > MAX_COUNTER)).nonzero()
    if bad.numel():
        row = int(bad[0, 0])
        raise InputError(f"{name}[{row}] = {int(counter[row])}: a counter must lie in [0, 2**32)")
