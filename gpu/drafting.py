"""EAGLE-3 drafting for a batch: the head behind the `Drafter` protocol of `rheocheck.gpu.tree`.

Between rounds only the verified tokens' keys and values are kept. Verified pair t is (target
feature after token t, token t + 1), at rotary position t; a row with n pairs has its root at
position n - 1 and level d of a tree at n + d - 1. A drafted token reads its parent's output instead
of a target feature and sees the verified pairs, its ancestors and itself. The tree's keys and
values are thrown away each round; accepted tokens come back through `advance`, with the target's
features.

Source: Li, Wei, Zhang and Zhang (2025), "EAGLE-3", arXiv:2503.01840, Section 3.1; tree drafting
after Li, Wei, Zhang and Zhang (2024), "EAGLE-2", arXiv:2406.16858.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rheocheck.errors import InputError
from rheocheck.gpu.eagle3 import Eagle3Head, KeyValues

# Added to a score it leaves exactly no weight, and unlike -inf it makes no NaN in a padded row.
HIDDEN = torch.finfo(torch.float32).min


@dataclass(frozen=True, slots=True)
class VerifiedState:
    """What the head remembers between rounds; a value that no method changes.

    Attributes:
      key_values: [batch, kv_heads, slots, head_dim] of verified pairs. Row b's are in slots
        0..length[b] - 1, slot t at position t; later slots are padding that nothing may see.
      length: [batch] int64, verified pairs.
      hidden: [batch, hidden] the head's output at each row's last pair; zero in a row without one.
    """

    key_values: KeyValues
    length: Tensor
    hidden: Tensor


@dataclass(frozen=True, slots=True)
class DraftedTree:
    """What the head remembers within a round.

    Attributes:
      key_values: [batch, kv_heads, drafted, head_dim] of all tokens drafted in this round.
      sees: [batch, frontier, drafted] whether a frontier token sees a drafted one.
      hidden: [batch, frontier, hidden] outputs at the frontier.
      level: Of the frontier; 0 is the root.
    """

    key_values: KeyValues
    sees: Tensor
    hidden: Tensor
    level: int


class EagleDrafter:
    """Drafts with an EAGLE-3 head; rows may have different lengths and trees.

    A row without a verified pair (its text is one token long) drafts from a zero feature: the head
    says nothing useful there, but its law is defined, and no draft law can make a round lossy.

    Attributes:
      head: The head.
      state: Of the verified tokens. Assigning an earlier one goes back to it.
    """

    def __init__(self, head: Eagle3Head, batch: int) -> None:
        """Start `batch` rows without verified tokens."""
        self.head = head
        weight = head.fc.weight
        self.state = VerifiedState(
            head.empty_key_values(batch),
            torch.zeros(batch, dtype=torch.int64, device=weight.device),
            weight.new_zeros(batch, head.config.hidden_size),
        )
        self._tree = self._bare_root()

    @property
    def token_ids(self) -> Tensor:
        """[draft_vocab] int64, strictly increasing: the target token of each draft token."""
        return self.head.token_ids

    @torch.no_grad()
    def advance(self, features: Tensor, token: Tensor, count: Tensor) -> None:
        """Append newly verified pairs: the prompt's at first, then each round's accepted tokens.

        Args:
          features: [batch, new, 3 * target_hidden] the target's, at the token before each token.
          token: [batch, new] target ids.
          count: [batch] leading pairs that are meant; the rest of a row is padding and may hold
            anything. 0 leaves a row as it is.

        Raises:
          InputError: Shapes that do not fit together, or a count outside 0..new.
        """
        batch, new = token.shape
        width = 3 * self.head.config.target_hidden_size
        if (
            features.shape != (batch, new, width)
            or count.shape != (batch,)
            or batch != len(self.state.length)
        ):
            raise InputError(
                f"features {list(features.shape)}, tokens {list(token.shape)} and counts "
                f"{list(count.shape)} must be [batch, new, {width}], [batch, new] and [batch] with "
                f"batch = {len(self.state.length)}"
            )
        if bool(((count < 0) | (count > new)).any()):
            raise InputError(f"counts {count.tolist()} must lie between 0 and {new}")
        if new > 0:
            self.state = self._append(features, token, count)
        self._tree = self._bare_root()

    @torch.no_grad()
    def root(self) -> Tensor:
        """Forget this round's tree; [batch, draft_vocab] logits after each row's last token."""
        self._tree = self._bare_root()
        return self.head.logits(self.state.hidden)

    @torch.no_grad()
    def extend(self, parent: Tensor, token: Tensor, valid: Tensor) -> Tensor:
        """Draft one level deeper.

        Args:
          parent: [batch, frontier] index of each token's parent in the previous call's frontier; 0
            in the first call, whose parents are the roots.
          token: [batch, frontier] target ids.
          valid: [batch, frontier] False on padding, whose token and parent may be anything.

        Returns:
          [batch, frontier, draft_vocab] logits after each token; finite and meaningless on padding.
        """
        head, state, tree = self.head, self.state, self._tree
        batch, frontier = token.shape
        parent = parent.masked_fill(~valid, 0)
        feature = head.feedback(pick(tree.hidden, parent))
        itself = torch.eye(frontier, dtype=torch.bool, device=token.device)
        sees = torch.cat((pick(tree.sees, parent), itself.expand(batch, -1, -1)), dim=-1)
        verified = self._verified_slots()[:, None].expand(-1, frontier, -1)
        output = head(
            token.masked_fill(~valid, 0),
            feature,
            (state.length + tree.level)[:, None].expand(-1, frontier),
            additive(torch.cat((verified, sees), dim=-1)),
            join(state.key_values, tree.key_values),
        )
        self._tree = DraftedTree(
            join(tree.key_values, output.key_values), sees, output.hidden, tree.level + 1
        )
        return head.logits(output.hidden)

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with some rows only, in the order given. `rows`: [kept] int64 batch indices."""
        keys, values = self.state.key_values
        length = self.state.length[rows]
        slots = int(length.max()) if len(rows) else 0
        kept = KeyValues(keys[rows, :, :slots], values[rows, :, :slots])
        self.state = VerifiedState(kept, length, self.state.hidden[rows])
        self._tree = self._bare_root()

    def _append(self, features: Tensor, token: Tensor, count: Tensor) -> VerifiedState:
        """The state after some pairs more."""
        head, state = self.head, self.state
        batch, new = token.shape
        index = torch.arange(new, device=token.device)
        valid = index < count[:, None]
        # Zero times a padded NaN would be NaN, so padding is blanked and not just masked.
        blanked = features.to(head.fc.weight.dtype).masked_fill(~valid[..., None], 0)
        earlier = (index[:, None] >= index).expand(batch, -1, -1)
        verified = self._verified_slots()[:, None].expand(-1, new, -1)
        slot = state.length[:, None] + index
        output = head(
            token.masked_fill(~valid, 0),
            head.fuse(blanked),
            slot,
            additive(torch.cat((verified, earlier), dim=-1)),
            state.key_values,
        )
        length = state.length + count
        slots = int(length.max())
        # Padding goes to one slot too many, which is cut off.
        target_slot = slot.masked_fill(~valid, slots)
        stored = KeyValues(
            store(state.key_values.keys, output.key_values.keys, target_slot, slots),
            store(state.key_values.values, output.key_values.values, target_slot, slots),
        )
        last = pick(output.hidden, (count - 1).clamp_min(0)[:, None])[:, 0]
        hidden = torch.where((count > 0)[:, None], last, state.hidden)
        return VerifiedState(stored, length, hidden)

    def _bare_root(self) -> DraftedTree:
        """The tree before its first level: its frontier is the root, which is a verified token."""
        batch = len(self.state.length)
        sees = torch.zeros(batch, 1, 0, dtype=torch.bool, device=self.state.length.device)
        return DraftedTree(
            self.head.empty_key_values(batch), sees, self.state.hidden[:, None], level=0
        )

    def _verified_slots(self) -> Tensor:
        """[batch, slots] True where a slot holds a verified pair."""
        slots = self.state.key_values.keys.shape[2]
        return torch.arange(slots, device=self.state.length.device) < self.state.length[:, None]


def additive(sees: Tensor) -> Tensor:
    """[...] bool -> float32: 0 where True, else a number that leaves no weight."""
    return torch.zeros(sees.shape, device=sees.device).masked_fill(~sees, HIDDEN)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """[batch, items, ...] at [batch, picks] indices -> [batch, picks, ...]."""
    rows = torch.arange(len(values), device=values.device)
    return values[rows[:, None], index]


def join(first: KeyValues, second: KeyValues) -> KeyValues:
    """Both, one after the other along the tokens."""
    return KeyValues(
        torch.cat((first.keys, second.keys), dim=2), torch.cat((first.values, second.values), dim=2)
    )


def store(old: Tensor, new: Tensor, slot: Tensor, slots: int) -> Tensor:
    """Put new keys or values into their slots.

    Args:
      old: [batch, kv_heads, old_slots, head_dim].
      new: [batch, kv_heads, new, head_dim].
      slot: [batch, new] where to, each at most `slots`; what goes to `slots` is dropped.
      slots: Slots of the result, at least old_slots.

    Returns:
      [batch, kv_heads, slots, head_dim], zero where nothing was put.
    """
    batch, kv_heads, old_slots, head_dim = old.shape
    held = old.new_zeros(batch, kv_heads, slots + 1, head_dim)
    held[:, :, :old_slots] = old
    held.scatter_(2, slot[:, None, :, None].expand(-1, kv_heads, -1, head_dim), new)
    return held[:, :, :slots]
