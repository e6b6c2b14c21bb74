"""Moves units of the state from worker to worker, as a plan's `migration` tells, through an object store.

They are of 8 MiB at most: the digest of a larger one is made of those of its blocks (events/README.md).
"""

import collections

from perceptron import digest


def give(node, migration, content_of, shards):
    """Puts into the store what a node is to give. Yields an offer of each unit once its parts are there."""
    wanted, size = collections.defaultdict(set), migration["shardBytes"]
    for transfer in migration["transfers"]:
        for source in transfer["sources"]:
            if source["node"] == node:
                wanted[transfer["unit"]].update(range(source["shards"]["first"], source["shards"]["end"]))
    for unit, numbers in sorted(wanted.items()):
        content, parts = content_of(unit), []
        for first in (number * size for number in sorted(numbers)):
            part = content[first:first + size]
            shards.put(digest(part), part)
            parts.append({"digest": digest(part), "first": first, "end": first + len(part)})
        yield {"unit": unit, "digest": digest(content), "bytes": len(content), "parts": parts}


def take(node, migration, offers, shards):
    """Returns the bytes of the units that a node is to take, or None where an offer is missing. Raises ValueError where
    they are not what was offered. Offers are by node and unit."""
    units = {}
    for transfer in migration["transfers"]:
        if transfer["to"] == node:
            sources = [(source["node"], transfer["unit"]) for source in transfer["sources"]]
            if not all(source in offers for source in sources):
                return None
            units[transfer["unit"]] = [offers[source] for source in sources]
    return {unit: _fetch(unit, offered, shards) for unit, offered in units.items()}


def _fetch(unit, offers, shards):
    content = bytearray(offers[0]["bytes"])
    for offer in offers:
        for part in offer["parts"]:
            content[part["first"]:part["end"]] = shards.get(part["digest"])
    for offer in offers:
        if digest(content) != offer["digest"]:
            raise ValueError(f"unit {unit}: {offer['node']} offered {offer['digest']}, its parts are {digest(content)}")
    return content
