"""A switch's routes: the whole table at a time. The controller's process uses it too, which owns no
switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address

from testbed.dataplanes.bmv2.switch_client import Action, Key, SwitchClient
from testbed.errors import SettingError, TestbedError
from testbed.topology.addresses import Dpid
from testbed.topology.model import UnitSpec

TABLE, CIRCUITS = "routes", "circuits"

# (IPv4 address, prefix) -> (devices to leave by, of parallel circuits, or the one, "" for nowhere; new
# destination MAC or "")
Routes = Mapping[tuple[str, int], tuple[tuple[str, ...], str]]
_Wanted = Mapping[tuple[int, int | None], Action]  # by value and prefix of the key


def router(unit: UnitSpec, dpid: Dpid) -> Callable[[Routes], None]:
    """Return what replaces the table of routes of a unit's switch, from whatever process of the testbed."""
    return partial(set_routes, SwitchClient(dpid), unit.ports_of(dpid))


def set_routes(client: SwitchClient, ports: Mapping[str, int], routes: Routes) -> None:
    """Replace the table (`Routes`). `ports`: device -> number.

    An entry that stays is not touched, one that changes is replaced in one step; parallel circuits are there
    before a route names them. Raises SettingError if another table is read back.
    """
    wanted, circuits = dict[tuple[int, int | None], Action](), dict[tuple[int, int | None], Action]()
    for (ip, prefix), (devices, mac) in routes.items():
        numbers = [_port(ports, device) for device in devices if device]
        wanted[int(IPv4Address(ip)), prefix] = _action(numbers, mac)
        if len(numbers) > 1:
            for way, number in enumerate(numbers):
                circuits[numbers[0] << 8 | way, None] = Action("route", (number,))
    present = _put(client, CIRCUITS, 16, circuits)
    _remove(client, TABLE, _put(client, TABLE, 32, wanted), wanted)
    _remove(client, CIRCUITS, present, circuits)


def _put(client: SwitchClient, table: str, bits: int, wanted: _Wanted) -> dict[tuple[int, int | None], int]:
    """Put the entries that are wanted, and return the handles of those that were there."""
    present = {(entry.value, entry.prefix): entry for entry in client.entries(table)}
    for (value, prefix), action in wanted.items():
        entry = present.get((value, prefix))
        if entry is None:
            client.add_entry(table, Key(value, bits, prefix), action)
        elif entry.action != action:
            client.replace_entry(table, entry.handle, action)
    return {key: entry.handle for key, entry in present.items()}


def _remove(
    client: SwitchClient, table: str, present: Mapping[tuple[int, int | None], int], wanted: _Wanted
) -> None:
    """Take away what was there and is not wanted, and read the table back."""
    for key, handle in present.items():
        if key not in wanted:
            client.delete_entry(table, handle)
    read = {(entry.value, entry.prefix): entry.action for entry in client.entries(table)}
    if read != wanted:
        raise SettingError(f"{table} of {client.name}: set {len(wanted)}, read back {len(read)} or others")


def mac_number(mac: str) -> int:
    """Return the 48-bit number of a MAC address."""
    return int(mac.replace(":", ""), 16)


def _port(ports: Mapping[str, int], device: str) -> int:
    if device not in ports:
        raise TestbedError(f"route by {device}: no such port; there are {', '.join(ports)}")
    return ports[device]


def _action(numbers: Sequence[int], mac: str) -> Action:
    if not numbers:
        return Action("no_route")  # and nobody has the switch's own MAC address: `stations` drops it
    if len(numbers) > 1:  # to another unit: no host's address is set there
        return Action("spread", (numbers[0], len(numbers)))
    return Action("route_to", (numbers[0], mac_number(mac))) if mac else Action("route", (numbers[0],))
