"""Merged-law verification in a pruned tree: where it is lossless, and where it is not.

At a node whose candidates are the core C and Z ~ w (see `node`), testing Z first against the merged
law w and then C as point masses attains the optimum. In a pruned tree the candidates are what the
budget left, and the question is when w is still the law of Z.

Claim. Merged verification is lossless at every node for which it was decided *when the node was
expanded*, all its children then surviving whatever is drawn later (`foreseen`); other nodes are
verified probe first.

Proof. Write h for what was drawn before a node u was expanded. By induction from the root: given h,
the probability that verification reaches u does not depend on any draw below u. For let w be u's
parent; the same holds for w, and the decision at w is part of h. If u is a top token that was
expanded before w's probe was drawn, it is a candidate for certain, so it is accepted with its
target probability under either rule: what is drawn below u can only decide whether w's probe
survives, never its law. Otherwise w's probe is part of h, and the tests before u are fixed by it.
So given that u is reached its own probe still has its law. If all children of u survive, they are C
and Z ~ w, and the tests are lossless for that law; if u is verified probe first, they are lossless
because the probe's survival was settled before its token. Either way the next token has the target
law given h, and the induction goes on at the accepted child.

Two shorter conditions are not enough; `merged_counterexamples` has exact instances.

* `survivors`: all children of u are in the tree that was drawn. A filler's survival depends on X.
* `regrown`: all children survive for every other X, all other draws left as they are. That looks at
  draws below u. They then decide which of two rules u gets; given X, the rules accept a child v
  with different probabilities; so v's own probe no longer has its law once v was accepted.

The condition can be dropped if the *drafting* is merged instead (`core_and_merged_child`): C as the
top and Z as the probe, drawn from w last, with a score that is the same for every token. That is a
dual-identity expansion with another probe law, so probe-first verification is lossless at every
budget; with all children surviving it attains the same optimum.

Source: Hu, Weng and Zhang (2026), arXiv:2609.21827, for dual identity and probe-first verification.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from rheocheck.bounds.growth import (
    Drafting,
    DraftModel,
    DraftTree,
    Expansion,
    Growth,
    Path,
    dual_identity,
    expansions_of,
)
from rheocheck.bounds.laws import DraftLike
from rheocheck.config import SpeculationConfig
from rheocheck.errors import InputError
from rheocheck.reference import Choose, Role, as_law, exact_law

Condition: TypeAlias = Literal["never", "survivors", "regrown", "foreseen"]
CONDITIONS: tuple[Condition, ...] = ("never", "survivors", "regrown", "foreseen")
Program: TypeAlias = Callable[[Choose], Path]
ZERO, ONE = Fraction(0), Fraction(1)


def merged_round(
    target: Callable[[Path], Sequence[Any]],
    draft: DraftModel,
    config: SpeculationConfig,
    condition: Condition,
    drafting: Drafting = dual_identity,
) -> Program:
    """A round that verifies by the merged law where `condition` holds, else probe first.

    Args:
      target: path -> [vocab] law of Fractions.
      draft: path -> [vocab] law or 2-tuple of laws, of Fractions.
      config: top_k, num_top, budget, depth and support_size.
      condition: See the module's text; "never" is probe-first verification throughout.
      drafting: How a node's children are made.

    Returns:
      A program for `exact_law`: the emission of one round.

    Raises:
      InputError: An unknown condition.
    """
    if condition not in CONDITIONS:
        raise InputError(f"condition is {condition!r}; required: one of {', '.join(CONDITIONS)}")
    expand = expansions_of(draft, config, drafting)
    foresee = condition == "foreseen"
    decided: dict[Any, bool] = {}  # a program runs once for every outcome of every draw

    def program(choose: Choose) -> Path:
        drawn: dict[Path, int] = {}
        tree, merged = _grow(expand, config, choose, drawn, decided if foresee else None)
        if condition in ("survivors", "regrown"):
            merged = {
                node for node, below in enumerate(tree.children()) if _complete(tree, node, below)
            }
        if condition == "regrown":
            paths = tree.paths()
            merged = {
                n for n in merged if _always_complete(expand, config, choose, drawn, paths[n])
            }
        return _verify(tree, merged, target, choose)

    return program


def foreseen_mixture(draft: DraftModel, config: SpeculationConfig) -> tuple[bool, bool]:
    """Whether some tree has a node with a probe that is foreseen, and some tree one that is not.

    Args:
      draft: path -> [vocab] law or 2-tuple of laws, of Fractions.
      config: top_k, num_top, budget, depth and support_size.
    """
    expand = expansions_of(draft, config)
    decided: dict[Any, bool] = {}

    def program(choose: Choose) -> tuple[bool, bool]:
        tree, foreseen = _grow(expand, config, choose, {}, decided)
        with_probe = {
            node
            for node, expansion in enumerate(tree.expansions)
            if expansion is not None and len(expansion.probe_law)
        }
        return bool(with_probe & foreseen), bool(with_probe - foreseen)

    outcomes = exact_law(program)
    return any(merged for merged, _ in outcomes), any(other for _, other in outcomes)


def core_and_merged_child(draft: DraftLike, config: SpeculationConfig) -> Expansion:
    """Another expansion: the core as top, and one probe drawn from the merged law.

    With all children surviving the candidates have the same law as in `dual_identity`. The probe's
    score factor is the core's least one, or what is left of the ranking law if that is less.
    """
    given = dual_identity(draft, config)
    if not len(given.probe_law):
        return given
    last = given.num_children - 1
    law = merged_probe_law(given)[last - given.num_top :]
    tail = sum(given.factors[last:])
    proxy = min(given.factors[last - 1], tail) if last else given.factors[0]
    return Expansion(given.tokens, given.factors, last, given.num_children, proxy, law)


def merged_probe_law(expansion: Expansion) -> list[Any]:
    """[tail] law of Z over the tail in rank order; 0 on the tail's tokens of the core."""
    num_fillers = expansion.num_children - expansion.num_top - 1
    law = list(expansion.probe_law)
    early = sum(law[: num_fillers + 1])
    return [law[0] * 0] * num_fillers + [early, *law[num_fillers + 1 :]]


def foreseen_complete(growth: Growth, node: int) -> bool:
    """Whether all children of `node` survive in every continuation of an unfinished growth."""
    stack = [growth.copy()]
    while stack:
        state = stack.pop()
        weights = state.run()
        if weights is None:
            tree = state.tree()
            if not _complete(tree, node, tree.children()[node]):
                return False
            continue
        stack.extend(state.branch(place) for place, mass in enumerate(weights) if mass > 0)
    return True


def _grow(
    expand: Callable[[Path], Expansion],
    config: SpeculationConfig,
    choose: Choose,
    drawn: dict[Path, int],
    decided: dict[Any, bool] | None = None,
) -> tuple[DraftTree, set[int]]:
    """Grow a tree; a probe's place in the tail is taken from `drawn`, or drawn and added to it.

    Returns:
      The tree, and its foreseen nodes; none without `decided`, which remembers the decisions.
    """
    growth = Growth(expand, config)
    foreseen: set[int] = set()
    node = 0
    history: list[int] = []
    while True:
        if decided is not None and growth.is_expanded(node):
            key = (node, *history)
            if key not in decided:
                decided[key] = foreseen_complete(growth, node)
            if decided[key]:
                foreseen.add(node)
        if growth.done:
            return growth.tree(), foreseen
        weights = growth.waiting_law()
        if weights is not None:
            parent = growth.waiting_parent()
            if parent not in drawn:
                drawn[parent] = choose.categorical(weights)
            history.append(drawn[parent])
            growth = growth.branch(drawn[parent])
        node = growth.pop()


def _always_complete(
    expand: Callable[[Path], Expansion],
    config: SpeculationConfig,
    choose: Choose,
    drawn: dict[Path, int],
    path: Path,
) -> bool:
    """Whether all children at `path` survive with every other probe there, other draws kept.

    Draws that the trees grown again ask for and the first one did not are made here.
    """
    here = drawn.get(path)
    law = expand(path).probe_law
    if here is None:
        return True  # no probe there: the children do not depend on a draw
    complete = True
    for place, mass in enumerate(law):
        if mass > 0 and place != here:
            drawn[path] = place
            tree, _ = _grow(expand, config, choose, drawn)
            node = tree.paths().index(path)
            complete = complete and _complete(tree, node, tree.children()[node])
    drawn[path] = here
    return complete


def _complete(tree: DraftTree, node: int, below: Sequence[int]) -> bool:
    expansion = tree.expansions[node]
    return expansion is not None and len(below) == expansion.num_children


def _verify(
    tree: DraftTree,
    merged: set[int],
    target: Callable[[Path], Sequence[Any]],
    choose: Choose,
) -> Path:
    """Walk down the tree along accepted children; returns the emission."""
    children, node = tree.children(), 0
    path: Path = ()
    while True:
        below = {tree.token[child - 1]: child for child in children[node]}
        probes = [token for token, child in below.items() if tree.role[child - 1] is Role.PROBE]
        law, first = [ZERO] * len(target(path)), None
        expansion = tree.expansions[node]
        if probes:
            assert expansion is not None
            tail = expansion.tokens[expansion.num_top :]
            shares = merged_probe_law(expansion) if node in merged else expansion.probe_law
            for token, mass in zip(tail, shares, strict=True):
                law[token] = mass
            # Z is the one candidate that w gives mass to.
            (first,) = [token for token in below if law[token] > 0] if node in merged else probes
        token, accepted = _test(as_law(target(path)), list(below), law, first, choose)
        path = (*path, token)
        if not accepted:
            return path
        node = below[token]


def _test(
    residual: Sequence[Fraction],
    tokens: list[int],
    law: Sequence[Fraction],
    first: int | None,
    choose: Choose,
) -> tuple[int, bool]:
    """Test `first` against its law, then the others as point masses; emit the residual."""
    if first is not None:
        if choose.bernoulli(min(ONE, residual[first] / law[first])):
            return first, True
        residual = _scaled([max(r - d, ZERO) for r, d in zip(residual, law, strict=True)])
    for token in tokens:
        if token != first:
            if choose.bernoulli(residual[token]):
                return token, True
            residual = _scaled([ZERO if t == token else r for t, r in enumerate(residual)])
    return choose.categorical(residual), False


def _scaled(masses: Sequence[Fraction]) -> list[Fraction]:
    whole = sum(masses, ZERO)
    return [mass / whole for mass in masses]
