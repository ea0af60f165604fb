"""Load the programs of a running plane again, with their existing maps, and replace the old ones port by
port.

An upgrade of the data plane under traffic would do the same: at any moment a port has the old program or the
new one, and both work on the same slots, so nothing is lost.
"""

from __future__ import annotations

import json
import os
import subprocess

from testbed.daemon.network import Network
from testbed.dataplanes.xdp.plane import PINNED_PROGRAM
from testbed.dataplanes.xdp.program import in_namespace
from testbed.dataplanes.xdp.syscall import pin, program_id
from testbed.errors import SettingError, TestbedError
from testbed.topology.addresses import ROOM_DEVICES
from tests.limits import CALL_S


def reload(network: Network) -> dict[str, int]:
    """Replace every program at every port, and return the new programs' ids in the kernel, by name.
    SettingError if a port does not run the new program afterwards. No two reloads may run at once.
    """
    plane, ports = network.machine.plane, network.machine.switch_ports()
    programs = plane.programs
    old = dict(programs.compiled.functions)
    try:
        for name in tuple(old):
            programs.compiled.functions[name] = programs.compiled.loaded(name)
    except Exception as error:  # bcc raises a plain Exception
        programs.compiled.functions.update(old)
        raise TestbedError(f"load the XDP programs again: {error}") from error
    numbers = {name: program_id(programs.program_fd(name)) for name in old}
    for port in ports:
        programs.attach(port.program, port.device)
    for device in ROOM_DEVICES:
        programs.attach("room_port", device)
    _check({port.device: numbers[port.program] for port in ports})
    _check(dict.fromkeys(ROOM_DEVICES, numbers["room_port"]))
    for host in network.machine.host_ports().values():

        def replace() -> None:
            programs.attach("host_port", "eth0")
            _check({"eth0": numbers["host_port"]})

        in_namespace(host.namespace, replace)
    target = plane._pin_dir / PINNED_PROGRAM
    fresh = target.with_name(f"{PINNED_PROGRAM}_new")  # names on a bpffs have no dots
    pin(programs.program_fd(PINNED_PROGRAM), fresh)
    fresh.rename(target)
    for function in old.values():
        os.close(function.fd)
    return numbers


def _check(wanted: dict[str, int]) -> None:
    links = json.loads(
        subprocess.run(["ip", "-json", "link"], capture_output=True, check=True, timeout=CALL_S).stdout
    )
    attached = {link["ifname"]: link["xdp"]["prog"]["id"] for link in links if "xdp" in link}
    for device, number in wanted.items():
        if attached.get(device) != number:
            raise SettingError(
                f"{device}: XDP program {number} was attached and {attached.get(device)} reads back"
            )
