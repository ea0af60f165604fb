"""Encode sites and layouts as JSON, for systems with a class that runs in a user's process. Pure."""

from __future__ import annotations

from typing import Any

from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.encoding import from_json, to_json
from testbed.topology.units import Unit, checked_unit

_CHECKS = {Unit: checked_unit}


def site_to_json(site: Site) -> dict[str, Any]:
    """Encode a site completely: `site_from_json` makes an equal one of it."""
    return dict(to_json(site))


def site_from_json(data: Any) -> Site:
    """Decode the data that `site_to_json` returned."""
    return from_json(Site, data, _CHECKS)


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """Encode a layout completely: `layout_from_json` makes an equal one of it."""
    return dict(to_json(layout))


def layout_from_json(data: Any) -> Layout:
    """Decode a layout. Raises ValueError for malformed data, RequestError for an invalid forest: any program
    may have written it.
    """
    try:
        return from_json(Layout, data, _CHECKS)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"no layout: {type(error).__name__}: {error}") from error
