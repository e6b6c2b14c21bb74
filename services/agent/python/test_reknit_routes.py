"""What reknit_routes.py promises of any plan."""

import random
import unittest

import reknit_routes


def plan_of(*pipelines, reroutes=(), rounds=()):
    """Returns a plan of pipelines: how many micro-batches, and pairs of a node and the end of its layers."""
    made = []
    for micro_batches, *stages in pipelines:
        first, pipeline = 0, {"microBatches": micro_batches, "stages": []}
        for node, end in stages:
            pipeline["stages"].append({"node": node, "layers": {"first": first, "end": end}})
            first = end
        made.append(pipeline)
    lost = [{"from": one, "to": to, "microBatches": count} for one, to, count in reroutes]
    groups = [{"groups": [{"layers": {"first": f, "end": e}, "nodes": n} for f, e, n in turn]} for turn in rounds]
    return {"pipelines": made, "reroutes": lost, "sync": {"rounds": groups}}


def nodes_of(plan):
    lost = {reroute["from"] for reroute in plan["reroutes"]}
    return {stage["node"] for pipeline in plan["pipelines"] for stage in pipeline["stages"]} - lost


def play(plan):
    """Runs all nodes' tasks as processes do: each waits for its input. Returns how many layers were run, by pass."""
    waiting = {node: reknit_routes.tasks(plan, node) for node in nodes_of(plan)}
    sent, ran = set(), {}
    while any(waiting.values()):
        before = len(ran)
        for node, tasks in waiting.items():
            while tasks:
                task = tasks[0]
                if task.source is not None and (task.source, node, task.micro_batch, task.hop, task.backward) not in sent:
                    break
                tasks.pop(0)
                for layer in task.layers:
                    assert (task.micro_batch, layer, task.backward) not in ran
                    ran[task.micro_batch, layer, task.backward] = node
                hop = task.hop - 1 if task.backward else task.hop + 1
                if task.target is not None:
                    sent.add((node, task.target, task.micro_batch, hop, task.backward))
        if len(ran) == before:
            raise AssertionError(f"nobody goes on: {waiting}")
    return ran


def random_plan(dice):
    """Returns a plan of some pipelines, of which some nodes are lost and rerouted to others."""
    layers = dice.randint(1, 6)
    pipelines = []
    for p in range(dice.randint(1, 3)):
        ends = sorted(dice.sample(range(1, layers), dice.randint(0, layers - 1))) + [layers]
        pipelines.append((dice.randint(1, 5), *((f"p{p}s{s}", end) for s, end in enumerate(ends))))
    plan = plan_of(*pipelines)
    for pipeline in plan["pipelines"][1:]:
        for stage in pipeline["stages"]:
            if dice.random() < 0.3:  # the first pipeline lives, and takes over
                for other in plan["pipelines"][0]["stages"]:
                    first = max(other["layers"]["first"], stage["layers"]["first"])
                    end = min(other["layers"]["end"], stage["layers"]["end"])
                    apart = dice.random() < 0.5  # said layer by layer
                    for at in range(first, end) if apart else range(first, end)[:1]:
                        layers = {"layers": {"first": at, "end": at + 1}} if apart else {}
                        plan["reroutes"].append({"from": stage["node"], "to": other["node"],
                                                 "microBatches": pipeline["microBatches"], **layers})
    return plan


class Tasks(unittest.TestCase):
    def test_a_pipeline_runs_one_forward_one_backward(self):
        plan = plan_of((4, ("a", 1), ("b", 2)))
        said = {node: "".join("bf"[not task.backward] + str(task.micro_batch) for task in reknit_routes.tasks(plan, node))
                for node in "ab"}
        self.assertEqual({"a": "f0f1b0f2b1f3b2b3", "b": "f0b0f1b1f2b2f3b3"}, said)

    def test_a_task_names_who_comes_before_and_after_it(self):
        plan = plan_of((1, ("a", 1), ("b", 2), ("c", 3)))
        forward, backward = reknit_routes.tasks(plan, "b")
        self.assertEqual(("a", "c"), (forward.source, forward.target))
        self.assertEqual(("c", "a"), (backward.source, backward.target))
        self.assertIsNone(reknit_routes.tasks(plan, "a")[0].source)

    def test_the_same_stage_of_another_pipeline_trains_what_a_lost_node_would_have(self):
        plan = plan_of((2, ("a", 1), ("b", 2)), (2, ("c", 1), ("lost", 2)), reroutes=[("lost", "b", 2)])
        own = [task for task in reknit_routes.tasks(plan, "b") if not task.backward]
        self.assertEqual({(0, "a"), (1, "a"), (2, "c"), (3, "c")}, {(task.micro_batch, task.source) for task in own})

    def test_micro_batches_of_a_lost_node_are_dealt_in_the_order_of_the_reroutes(self):
        plan = plan_of((1, ("a", 1)), (1, ("b", 1)), (3, ("lost", 1)), reroutes=[("lost", "a", 1), ("lost", "b", 2)])
        trained = {node: {task.micro_batch for task in reknit_routes.tasks(plan, node)} for node in "ab"}
        self.assertEqual({"a": {0, 2}, "b": {1, 3, 4}}, trained)

    def test_a_reroute_of_some_layers_is_of_those_alone(self):
        plan = plan_of((1, ("a", 2)), (1, ("b", 2)), (2, ("lost", 2)),
                       reroutes=[("lost", "a", 2), ("lost", "a", 1), ("lost", "b", 1)])
        for reroute, first in zip(plan["reroutes"], (0, 1, 1)):
            reroute["layers"] = {"first": first, "end": first + 1}
        ran = play(plan)
        self.assertEqual(["a", "a", "a", "b"], [ran[at, layer, False] for at in (2, 3) for layer in (0, 1)])

    def test_micro_batches_that_nobody_takes_over_are_told(self):
        plan = plan_of((1, ("a", 1), ("b", 2)), (1, ("lost", 2)), reroutes=[("lost", "a", 1)])
        with self.assertRaisesRegex(ValueError, "expected all 1 micro-batches of lost at holders of layer 1, got 0"):
            reknit_routes.tasks(plan, "a")

    def test_whatever_the_plan_each_layer_runs_each_micro_batch_once_and_nobody_waits_for_ever(self):
        for seed in range(300):
            plan = random_plan(random.Random(seed))
            layers = plan["pipelines"][0]["stages"][-1]["layers"]["end"]
            micro_batches = sum(pipeline["microBatches"] for pipeline in plan["pipelines"])
            with self.subTest(seed=seed):
                self.assertEqual(2 * layers * micro_batches, len(play(plan)))

    def test_a_node_without_a_place_has_no_tasks(self):
        self.assertEqual([], reknit_routes.tasks(plan_of((1, ("a", 1))), "spare"))


class Sums(unittest.TestCase):
    def test_gradients_are_added_up_with_those_who_hold_the_layers_in_the_order_of_the_rounds(self):
        plan = plan_of((1, ("a", 2), ("b", 3)), (1, ("c", 1), ("d", 3)),
                       rounds=[[(0, 1, ["a", "c"]), (2, 3, ["b", "d"])], [(1, 2, ["a", "d"])]])
        self.assertEqual([(range(0, 1), ["a", "c"]), (range(1, 2), ["a", "d"])], reknit_routes.sums(plan, "a"))

    def test_a_layer_with_one_holder_is_added_up_with_nobody(self):
        self.assertEqual([], reknit_routes.sums(plan_of((1, ("a", 1))), "a"))

    def test_a_node_holds_the_layers_of_its_stage(self):
        plan = plan_of((1, ("a", 2), ("b", 5)))
        self.assertEqual(range(2, 5), reknit_routes.layers_of(plan, "b"))
        self.assertEqual(range(0), reknit_routes.layers_of(plan, "c"))


if __name__ == "__main__":
    unittest.main()
