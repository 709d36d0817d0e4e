"""A rewrite of the traced step that no single operator's decomposition can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, Node


def merge_products(graph: Graph) -> None:
    """Make one product of a sum of weight gradients: A1ᵀB1 + A2ᵀB2 + ... = [A1; A2; ...]ᵀ[B1; B2; ...].

    Autograd adds up one such product per time step of an LSTM, each as large as the weights.
    """
    for node in list(graph.nodes):
        if _is(node, "add.Tensor") and not _is_part_of_sum(node):
            _merge_terms(graph, node)
    graph.eliminate_dead_code()


def _merge_terms(graph: Graph, total: Node) -> None:
    import torch

    aten = torch.ops.aten
    factors, others = [], []
    for term in _terms(total):
        product = _without_double_transpose(term)
        if _is(product, "mm.default") and _is(product.args[0], "t.default"):
            factors.append((product.args[0].args[0], product.args[1]))
        else:
            others.append(term)
    if len(factors) < 2:
        return
    with graph.inserting_before(total):
        left, right = (_call(graph, aten.cat.default, list(side), 0) for side in zip(*factors, strict=True))
        merged = _call(graph, aten.mm.default, _call(graph, aten.t.default, left), right)
        for term in others:
            merged = _call(graph, aten.add.Tensor, term, merged)
    total.replace_all_uses_with(merged)


def _terms(total: Node) -> list[Node]:
    """What a sum of sums adds up, in order; intermediate sums that are read elsewhere stay whole."""
    waiting: list[Any] = [total]
    terms = []
    while waiting:
        node = waiting.pop()
        if node is total or (_is(node, "add.Tensor") and _is_part_of_sum(node)):
            waiting += reversed(list(node.args[:2]))
        else:
            terms.append(node)
    return terms


def _is_part_of_sum(node: Node) -> bool:
    return len(node.users) == 1 and _is(next(iter(node.users)), "add.Tensor")


def _without_double_transpose(node: Any) -> Any:
    while _is(node, "t.default") and _is(node.args[0], "t.default"):
        node = node.args[0].args[0]
    return node


def _is(node: Any, operator: str) -> bool:
    return str(getattr(node, "target", "")) == f"aten.{operator}"


def _call(graph: Graph, operator: Any, *args: Any) -> Node:
    """A new node with what the tracer would have noted about its result."""
    from torch.fx.node import map_arg

    node = graph.call_function(operator, args)
    node.meta["val"] = operator(*map_arg(args, lambda argument: argument.meta["val"]))
    return node
