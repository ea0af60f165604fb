"""Sites and layouts as JSON, for systems whose class runs in a process of its user's. Pure."""

from __future__ import annotations

from typing import Any

from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.encoding import from_json, to_json
from testbed.topology.units import Unit, checked_unit

_CHECKS = {Unit: checked_unit}


def site_to_json(site: Site) -> dict[str, Any]:
    """Return it whole and unchanged: `site_from_json` makes an equal one of it."""
    return dict(to_json(site))


def site_from_json(data: Any) -> Site:
    """Return the site that `site_to_json` was given."""
    return from_json(Site, data, _CHECKS)


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """Return it whole and unchanged: `layout_from_json` makes an equal one of it."""
    return dict(to_json(layout))


def layout_from_json(data: Any) -> Layout:
    """Return the layout. ValueError when it is none, RequestError when its forest is none: whoever wrote it
    need not be one of ours.
    """
    try:
        return from_json(Layout, data, _CHECKS)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"no layout: {type(error).__name__}: {error}") from error
