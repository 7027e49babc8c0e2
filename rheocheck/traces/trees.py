"""Draft trees of a trace, seen from the emitted tokens: the children that each was decided among.

Node 0 of a record is its root, what was emitted before the round; drafted node i is entry i - 1 of
its node arrays. The token emitted at step i of a round stands at node `at_node`, and all but the
last were drafted: they are the next step's node.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rheocheck.traces.shards import Piece

# Roles of drafted nodes, as written, and of the tokens that end a round.
ROLES = ("top", "probe", "filler", "residual", "bonus")
TOP, PROBE, FILLER, RESIDUAL, BONUS = range(5)


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """All surviving probes of a piece.

    Attributes:
      record: [probes] record within the piece.
      node: [probes] node of the record.
      layer: [probes] 1 for the root's children.
      below: [probes] mass of the probe's law on tokens ranked before it.
      mass: [probes] its own mass.
      uniform: [probes] that drew it, or None.
    """

    record: NDArray[np.int64]
    node: NDArray[np.int64]
    layer: NDArray[np.int64]
    below: NDArray[np.float64]
    mass: NDArray[np.float64]
    uniform: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The node of each emitted token and that node's surviving children, in the order of slots.

    Attributes:
      node: [emitted] node after which the token stands.
      node_role: [emitted] role of that node; -1 for the root.
      child: [emitted, children] node of each child; 0 where there is none.
      token: [emitted, children] its token; -1 where there is none.
      role: [emitted, children] its role; -1 where there is none.
      uniform: [emitted, children] of its accept test, or None.
      taken: [emitted] column of the child that was accepted; -1 where the round ended.
      final_uniform: [emitted] of the draw that ended the round (read where it did), or None.
      probes: All surviving probes, or None where their laws were not recorded.
    """

    node: NDArray[np.int64]
    node_role: NDArray[np.int64]
    child: NDArray[np.int64]
    token: NDArray[np.int64]
    role: NDArray[np.int64]
    uniform: NDArray[np.float64] | None
    taken: NDArray[np.int64]
    final_uniform: NDArray[np.float64] | None
    probes: Probes | None

    def emitted_role(self) -> NDArray[np.int64]:
        """[emitted] role in which each token was emitted, index into `ROLES`."""
        accepted = np.take_along_axis(self.role, self.taken.clip(0)[:, None], axis=1)[:, 0]
        ended = np.where((self.child > 0).any(axis=1), RESIDUAL, BONUS)
        return np.where(self.taken >= 0, accepted, ended)


def read_trees(piece: Piece) -> Trees | None:
    """Check the trees of a piece and lay them out by emitted token; None where there are none.

    Raises:
      TraceError: A parent that is not before its child, an unknown role, two probes or equal tokens
        under one parent, an emitted path that is not one of the tree, a uniform outside [0, 1).
    """
    arrays = piece.arrays
    if "num_nodes" not in arrays:
        return None
    nodes = _Nodes(piece)
    _check_uniforms(piece, nodes.record)
    begin = np.cumsum(arrays["num_tokens"]) - arrays["num_tokens"]
    record = np.repeat(np.arange(len(begin)), arrays["num_tokens"])
    at_node = arrays["at_node"]
    bad = np.flatnonzero((at_node < 0) | (at_node > arrays["num_nodes"][record]))
    if bad.size:
        raise piece.token_error(f"at_node = {at_node[bad[0]]}: no such node", int(bad[0]))
    bad = np.flatnonzero(at_node[begin] != 0)
    if bad.size:
        raise piece.error("at_node of the first emitted token must be 0, the root", int(bad[0]))
    child = nodes.children(record, at_node)
    taken = _taken(piece, at_node, child, begin)
    place = nodes.first[record][:, None] + child - 1
    there = child > 0

    def of_child(values: NDArray[np.int64]) -> NDArray[np.int64]:
        padded = np.append(values, -1)
        return np.asarray(np.where(there, padded[np.where(there, place, -1)], -1))

    roles = np.append(nodes.role, -1)
    own = nodes.first[record] + at_node - 1
    accept = arrays.get("node_uniform")
    final = arrays.get("final_uniform")
    return Trees(
        node=at_node,
        node_role=np.where(at_node > 0, roles[np.where(at_node > 0, own, -1)], -1),
        child=child,
        token=of_child(nodes.token),
        role=of_child(nodes.role),
        uniform=None
        if accept is None
        else np.where(there, np.append(accept.astype(float), 0.0)[np.where(there, place, -1)], 0.0),
        taken=taken,
        final_uniform=None if final is None else final.astype(np.float64)[record],
        probes=nodes.probes(),
    )


class _Nodes:
    """The drafted nodes of a piece, concatenated and checked."""

    def __init__(self, piece: Piece) -> None:
        arrays = piece.arrays
        self.piece, count = piece, arrays["num_nodes"]
        self.first = np.cumsum(count) - count
        self.record = np.repeat(np.arange(len(count)), count)
        self.index = np.arange(len(self.record)) - self.first[self.record] + 1
        self.token, self.parent = arrays["node_token"], arrays["node_parent"]
        self.role = arrays["node_role"]
        slot = arrays.get("node_slot", self.index)
        self._check()
        self._refuse(np.flatnonzero(slot < 0), "node_slot must be 0 or more")
        # Children of one parent stand together, in the order of their slots.
        self.key = self.record * (int(count.max(initial=0)) + 1) + self.parent
        self.stride = int(count.max(initial=0)) + 1
        self.order = np.lexsort((slot, self.key))
        self._check_siblings()

    def _refuse(self, bad: NDArray[np.int64], message: str) -> None:
        if bad.size:
            node = int(bad[0])
            raise self.piece.error(f"node {self.index[node]}: {message}", int(self.record[node]))

    def _check(self) -> None:
        vocab = self.piece.vocab
        self._refuse(
            np.flatnonzero((self.token < 0) | (self.token >= vocab)),
            f"node_token is outside the vocabulary of {vocab}",
        )
        self._refuse(
            np.flatnonzero((self.parent < 0) | (self.parent >= self.index)),
            "node_parent must be a node before it; 0 is the root",
        )
        self._refuse(
            np.flatnonzero((self.role < TOP) | (self.role > FILLER)),
            "node_role must be 0 (top), 1 (probe) or 2 (filler)",
        )

    def _check_siblings(self) -> None:
        by_token = np.lexsort((self.token, self.key))
        same = (self.key[by_token][1:] == self.key[by_token][:-1]) & (
            self.token[by_token][1:] == self.token[by_token][:-1]
        )
        self._refuse(by_token[1:][same], "has the token of another child of its parent")
        probes = np.flatnonzero(self.role == PROBE)
        _, first = np.unique(self.key[probes], return_index=True)
        self._refuse(np.delete(probes, first), "is the second probe of its parent")

    def children(self, record: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
        """[emitted, most children] nodes under each (record, node); 0 where there are fewer."""
        ordered, key = self.key[self.order], record * self.stride + node
        begin = np.searchsorted(ordered, key, side="left")
        count = np.searchsorted(ordered, key, side="right") - begin
        step = np.arange(max(1, int(count.max(initial=0))))
        there = step < count[:, None]
        if not len(self.order):
            return np.zeros(there.shape, dtype=np.int64)
        place = self.order[np.where(there, begin[:, None] + step, 0)]
        return np.where(there, self.index[place], 0)

    def layers(self) -> NDArray[np.int64]:
        """[nodes] layer of each node: 1 for the root's children."""
        layer = np.ones(len(self.index), dtype=np.int64)
        above = self.first[self.record] + self.parent - 1
        inner = self.parent > 0
        # A parent stands before its child, so one pass a layer settles it.
        while True:
            found = np.where(inner, layer[np.where(inner, above, 0)] + 1, 1)
            if (found == layer).all():
                return layer
            layer = found

    def probes(self) -> Probes | None:
        arrays = self.piece.arrays
        if "probe_below" not in arrays:
            return None
        probe = np.flatnonzero(self.role == PROBE)
        below = arrays["probe_below"].astype(np.float64)[probe]
        mass = arrays["probe_at"].astype(np.float64)[probe]
        bad = ~((below >= 0) & (mass >= 0) & (below + mass <= 1 + 1e-5))
        self._refuse(
            probe[np.flatnonzero(bad)],
            "probe_below and probe_at must be masses of one law",
        )
        uniform = arrays.get("probe_uniform")
        return Probes(
            record=self.record[probe],
            node=self.index[probe],
            layer=self.layers()[probe] if len(probe) else np.zeros(0, dtype=np.int64),
            below=below,
            mass=mass,
            uniform=None if uniform is None else uniform.astype(np.float64)[probe],
        )


def _taken(
    piece: Piece,
    at_node: NDArray[np.int64],
    child: NDArray[np.int64],
    begin: NDArray[np.int64],
) -> NDArray[np.int64]:
    """[emitted] column of the child that the next step stands at; -1 at a round's last step."""
    arrays = piece.arrays
    last = np.zeros(len(at_node), dtype=bool)
    last[begin + arrays["num_tokens"] - 1] = True
    following = np.append(at_node[1:], 0)
    hit = (child == following[:, None]) & (child > 0) & ~last[:, None]
    bad = np.flatnonzero(~last & ~hit.any(axis=1))
    if bad.size:
        raise piece.token_error(
            "at_node of the next token is not a child of this token's node", int(bad[0])
        )
    taken = np.where(last, -1, hit.argmax(axis=1))
    record = np.repeat(np.arange(len(begin)), arrays["num_tokens"])
    first = np.cumsum(arrays["num_nodes"]) - arrays["num_nodes"]
    place = np.where(last, -1, first[record] + following - 1)
    drafted = np.append(arrays["node_token"], -1)[place]
    bad = np.flatnonzero(~last & (drafted != arrays["token"]))
    if bad.size:
        raise piece.token_error(
            f"token {arrays['token'][bad[0]]} is not that of the accepted node, {drafted[bad[0]]}",
            int(bad[0]),
        )
    return taken


def _check_uniforms(piece: Piece, record_of_node: NDArray[np.int64]) -> None:
    for name in ("final_uniform", "node_uniform", "probe_uniform"):
        values = piece.arrays.get(name)
        if values is None:
            continue
        bad = np.flatnonzero(~((values >= 0) & (values < 1)))
        if bad.size:
            row = int(bad[0])
            record = row if name == "final_uniform" else int(record_of_node[row])
            raise piece.error(f"{name} = {values[row]}: must lie in [0, 1)", record)
