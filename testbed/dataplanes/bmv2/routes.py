"""A switch's routes: the whole table at a time. The controller's process uses it too, which owns no
switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv4Address

from testbed.dataplanes.bmv2.switch_client import Action, Key, SwitchClient
from testbed.errors import SettingError, TestbedError
from testbed.topology.addresses import Dpid
from testbed.topology.model import UnitSpec

TABLE = "routes"

# (IPv4 address, prefix) -> (device to leave by, or "" for nowhere, new destination MAC or "")
Routes = Mapping[tuple[str, int], tuple[str, str]]


def router(unit: UnitSpec, dpid: Dpid) -> Callable[[Routes], None]:
    """Return what replaces the table of routes of a unit's switch, from whatever process of the testbed."""
    return partial(set_routes, SwitchClient(dpid), unit.ports_of(dpid))


def set_routes(client: SwitchClient, ports: Mapping[str, int], routes: Routes) -> None:
    """Replace the table: (IPv4 address, prefix) -> (device to leave by, new destination MAC or ""). `ports`:
    device -> number.

    An entry that stays is not touched, one that changes is replaced in one step. Raises SettingError if
    another table is read back.
    """
    wanted = {
        (int(IPv4Address(ip)), prefix): _action(ports, device, mac)
        for (ip, prefix), (device, mac) in routes.items()
    }
    present = {(entry.value, entry.prefix): entry for entry in client.entries(TABLE)}
    for (ip, prefix), action in wanted.items():
        entry = present.get((ip, prefix))
        if entry is None:
            client.add_entry(TABLE, Key(ip, 32, prefix), action)
        elif entry.action != action:
            client.replace_entry(TABLE, entry.handle, action)
    for key, entry in present.items():
        if key not in wanted:
            client.delete_entry(TABLE, entry.handle)
    read = {(entry.value, entry.prefix): entry.action for entry in client.entries(TABLE)}
    if read != wanted:
        raise SettingError(f"routes of {client.name}: set {len(wanted)}, read back {len(read)} or others")


def mac_number(mac: str) -> int:
    """Return the 48-bit number of a MAC address."""
    return int(mac.replace(":", ""), 16)


def _action(ports: Mapping[str, int], device: str, mac: str) -> Action:
    if not device:
        return Action("no_route")  # and nobody has the switch's own MAC address: `stations` drops it
    if device not in ports:
        raise TestbedError(f"route by {device}: no such port; there are {', '.join(ports)}")
    return Action("route_to", (ports[device], mac_number(mac))) if mac else Action("route", (ports[device],))
