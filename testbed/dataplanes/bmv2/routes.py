"""Set a switch's routes, always the whole table. Also used by the controller's process, which owns
no switch.
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

# (IPv4 address, prefix) -> (devices to leave by: of parallel circuits, or a single one, "" for none; new
# destination MAC or "")
Routes = Mapping[tuple[str, int], tuple[tuple[str, ...], str]]
_Wanted = Mapping[tuple[int, int | None], Action]  # by value and prefix of the key


def router(unit: UnitSpec, dpid: Dpid) -> Callable[[Routes], None]:
    """Return a function that replaces the routing table of a unit's switch; it works in any process of the
    testbed.
    """
    return partial(set_routes, SwitchClient(dpid), unit.ports_of(dpid))


def set_routes(client: SwitchClient, ports: Mapping[str, int], routes: Routes) -> None:
    """Replace the table (`Routes`). `ports`: device -> number.

    Unchanged entries are not touched, and changed ones are replaced in one step; parallel circuits are set
    before a route refers to them. SettingError if another table is read back.
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
    """Write the wanted entries; return the handles of the earlier ones."""
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
    """Delete earlier entries that are not wanted, and read the table back."""
    for key, handle in present.items():
        if key not in wanted:
            client.delete_entry(table, handle)
    read = {(entry.value, entry.prefix): entry.action for entry in client.entries(table)}
    if read != wanted:
        raise SettingError(f"{table} of {client.name}: set {len(wanted)}, read back {len(read)} or others")


def mac_number(mac: str) -> int:
    """Convert a MAC address to a 48-bit number."""
    return int(mac.replace(":", ""), 16)


def _port(ports: Mapping[str, int], device: str) -> int:
    if device not in ports:
        raise TestbedError(f"route by {device}: no such port; there are {', '.join(ports)}")
    return ports[device]


def _action(numbers: Sequence[int], mac: str) -> Action:
    if not numbers:
        return Action("no_route")  # no station has the switch's own MAC address, so `stations` drops it
    if len(numbers) > 1:  # to another unit, so no host's MAC address is set
        return Action("spread", (numbers[0], len(numbers)))
    return Action("route_to", (numbers[0], mac_number(mac))) if mac else Action("route", (numbers[0],))
