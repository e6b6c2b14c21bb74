"""Says who computes what within a step of a pipelined job: from the plan alone, so that all nodes agree.

    plan = step.plan                                # services/agent/local/README.md
    for task in reknit_routes.tasks(plan, "n1"):    # in the order in which n1 runs them
        ...
    for layers, nodes in reknit_routes.sums(plan, "n1"):
        ...                                         # with whom n1 adds up the gradients of which layers

Standard library, stands alone.
"""

import collections
import heapq

__all__ = ["Task", "tasks", "sums", "layers_of"]

Hop = collections.namedtuple("Hop", "node layers")


class Task(collections.namedtuple("Task", "micro_batch hop backward layers before after")):
    """A pass of a micro-batch through layers of a node, which is that hop of the micro-batch's way.

    Micro-batches are counted over the whole step. before and after are the nodes next to it on the way forward; None:
    the way begins or ends here.
    """

    @property
    def source(self):
        """The node that the input comes from."""
        return self.after if self.backward else self.before

    @property
    def target(self):
        """The node that the output goes to."""
        return self.before if self.backward else self.after


def tasks(plan, node):
    """Returns what a node runs in a step, in order.

    A process that runs its tasks in this order, and waits for the input of each but never for anybody to take an output, is not
    stopped by others that do the same.
    """
    ways = _ways(plan)
    found = []
    for micro_batch, hop, backward in _orders(ways).get(node, []):
        way = ways[micro_batch]
        before = way[hop - 1].node if hop > 0 else None
        after = way[hop + 1].node if hop + 1 < len(way) else None
        found.append(Task(micro_batch, hop, backward, way[hop].layers, before, after))
    return found


def sums(plan, node):
    """Returns the layers whose gradients a node adds up with others, and these nodes, itself included, in the order of a ring."""
    groups = [group for turn in plan["sync"].get("rounds") or [] for group in turn["groups"]]
    return [(_range(group["layers"]), group["nodes"]) for group in groups if node in group["nodes"]]


def layers_of(plan, node):
    """Returns the layers that a node holds."""
    for pipeline in plan["pipelines"]:
        for stage in pipeline["stages"]:
            if stage["node"] == node:
                return _range(stage["layers"])
    return range(0)


def _range(both):
    return range(both["first"], both["end"])


def _ways(plan):
    """Returns the hops of each micro-batch of a step. The first pipeline trains the first ones, and so on."""
    ways = []
    for pipeline in plan["pipelines"]:
        own = [[] for _ in range(pipeline["microBatches"])]
        for stage in pipeline["stages"]:
            for layer in _range(stage["layers"]):
                for way, node in zip(own, _takers(plan, stage["node"], layer, len(own))):
                    first = way.pop().layers.start if way and way[-1].node == node else layer
                    way.append(Hop(node, range(first, layer + 1)))
        ways += own
    return ways


def _takers(plan, node, layer, micro_batches):
    """Returns for each micro-batch of a pipeline who runs a layer of a node.

    If that is lost, the nodes to which it is rerouted and which hold the layer take its place, one after the other.
    """
    reroutes = [reroute for reroute in plan.get("reroutes") or [] if reroute["from"] == node]
    if not reroutes:
        return [node] * micro_batches
    takers = []
    for reroute in reroutes:
        held = layers_of(plan, reroute["to"])
        if layer in held and layer in (_range(reroute["layers"]) if reroute.get("layers") else held):
            takers += [reroute["to"]] * reroute["microBatches"]
    if len(takers) != micro_batches:
        raise ValueError(f"reroutes: expected all {micro_batches} micro-batches of {node} at holders of layer {layer}, "
                         f"got {len(takers)}")
    return takers


def _orders(ways):
    """Returns the passes of each node in order: one forward, one backward.

    The step is played in rounds, of which a pass takes one. A backward pass goes first, for it frees memory. A forward
    pass waits while as many micro-batches are between the two as there are hops to go, this one included.
    """
    orders = {hop.node: [] for way in ways for hop in way}
    ready = {node: {} for node in orders}  # by node and hops to go, 0 for backward: passes whose input is there
    between = collections.Counter()  # by node and hops to go: micro-batches

    def arrive(micro_batch, hop, backward):
        way = ways[micro_batch]
        to_go = 0 if backward else len(way) - hop
        heapq.heappush(ready[way[hop].node].setdefault(to_go, []), (micro_batch, hop))

    for micro_batch in range(len(ways)):
        arrive(micro_batch, 0, False)
    ran = [None]
    while ran:
        ran = []
        for node, heaps in ready.items():
            free = [to_go for to_go, heap in heaps.items() if heap and (to_go == 0 or between[node, to_go] < to_go)]
            if free:
                to_go = 0 if 0 in free else min(free, key=lambda one: heaps[one][0])
                ran.append((node, *heapq.heappop(heaps[to_go]), to_go == 0))
        for node, micro_batch, hop, backward in ran:
            orders[node].append((micro_batch, hop, backward))
            to_go = len(ways[micro_batch]) - hop
            between[node, to_go] += -1 if backward else 1
            if not backward:
                arrive(micro_batch, hop + (to_go > 1), to_go == 1)
            elif hop > 0:
                arrive(micro_batch, hop - 1, True)
    return orders
