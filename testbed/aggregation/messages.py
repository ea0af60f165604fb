"""Sites and layouts as JSON, for systems whose class runs in a process of its user's. Pure."""

from __future__ import annotations

from typing import Any

from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.system import Layout, Rack, Site
from testbed.topology.places import Host, Place
from testbed.topology.units import checked_unit


def site_to_json(site: Site) -> dict[str, Any]:
    """Whole and unchanged: `site_from_json` makes an equal one of it."""
    return {
        "racks": [
            [
                rack.unit,
                rack.kind,
                rack.hosts,
                rack.rates_mbps,
                rack.racks,
                rack.usual_mbps,
                rack.pod_mbps,
                rack.reach_mbps,
            ]
            for rack in site.racks
        ],
        "joined_mbps": sorted([*sorted(pair), rate] for pair, rate in site.joined_mbps.items()),
        "busy": sorted(site.busy),
        "joined": sorted(sorted(pair) for pair in site.joined),
        "kept": site.kept,
    }


def site_from_json(data: Any) -> Site:
    """The site that `site_to_json` was given."""
    return Site(
        tuple(
            Rack(
                checked_unit(unit), str(kind), int(hosts), tuple(rates), int(racks), usual, tuple(pod), reach
            )
            for unit, kind, hosts, rates, racks, usual, pod, reach in data["racks"]
        ),
        frozenset(map(_host, data["busy"])),
        frozenset(frozenset(map(checked_unit, pair)) for pair in data["joined"]),
        None if data["kept"] is None else _host(data["kept"]),
        joined_mbps={
            frozenset((checked_unit(a), checked_unit(b))): float(rate) for a, b, rate in data["joined_mbps"]
        },
    )


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """Whole and unchanged: `layout_from_json` makes an equal one of it."""
    return {
        "system": layout.system,
        "workers": layout.workers,
        "server": layout.server,
        "trees": None if layout.forest is None else [_tree_to_json(tree) for tree in layout.forest.trees],
        "demands": layout.demands,
        "transport": layout.transport,
    }


def layout_from_json(data: Any) -> Layout:
    """ValueError when it is no layout, RequestError when its forest is none: whoever wrote it need not be one
    of ours.
    """
    try:
        workers = tuple(map(_host, data["workers"]))
        trees = None if data["trees"] is None else tuple(map(_tree_from_json, data["trees"]))
        server = None if data["server"] is None else _host(data["server"])
        demands = tuple((checked_unit(a), checked_unit(b)) for a, b in data["demands"])
        system, transport = data["system"], data["transport"]
        if not isinstance(system, str) or not isinstance(transport, str):
            raise TypeError("system and transport are texts")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no layout: {type(error).__name__}: {error}") from error
    forest = None if trees is None else Forest(workers, trees)
    return Layout(system, workers, transport, server, forest, demands)


def _tree_to_json(tree: Tree) -> dict[str, Any]:
    return {
        "top": _node_to_json(tree.top),
        "weight": float(tree.weight),
        "owner": tree.owner,
        "relayed": tree.relayed,
    }


def _tree_from_json(data: Any) -> Tree:
    owner = None if data["owner"] is None else _host(data["owner"])
    return Tree(_node_from_json(data["top"]), float(data["weight"]), owner, data["relayed"] is True)


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "place": [node.place.unit, node.place.host],
        "workers": list(node.workers),
        "below": [_node_to_json(child) for child in node.below],
    }


def _node_from_json(data: Any) -> Node:
    unit, host = data["place"]
    return Node(
        Place(checked_unit(unit), _whole(host)),
        tuple(map(_whole, data["workers"])),
        tuple(map(_node_from_json, data["below"])),
    )


def _host(data: Any) -> Host:
    unit, host = data
    return checked_unit(unit), _whole(host)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
