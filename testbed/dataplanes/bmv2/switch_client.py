"""The Thrift client of one switch: tables, multicast groups, registers, counters. It reads back everything
that it sets.

The only importer of BMv2's client and of thrift. Knows the P4 program only by names that callers give.
"""

from __future__ import annotations

import json
import logging
import select
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bm_runtime.simple_pre_lag import SimplePreLAG
from bm_runtime.simple_pre_lag import ttypes as groups_types
from bm_runtime.standard import Standard
from bm_runtime.standard import ttypes as types
from sswitch_runtime import SimpleSwitch
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from testbed.dataplanes.bmv2.process import BINARY, thrift_port
from testbed.errors import SettingError, TestbedError
from testbed.topology.addresses import Dpid, tor_name

# It logs each refused connection; the caller gets an error for that anyway.
logging.getLogger("thrift").addHandler(logging.NullHandler())

ANSWER_S = 5.0
_CONTEXT = 0  # a switch has contexts, simple_switch one


class NoAnswerError(TestbedError):
    """The switch did not answer, in time (`timed_out`) or before the connection was lost: the request may or
    may not have been executed.

    A refusal is a TestbedError: nothing was executed. `how` is the message without the switch's name.
    """

    def __init__(self, name: str, what: str, said: str, timed_out: bool) -> None:
        super().__init__(f"{name}'s {BINARY}: {what}: {said}")
        self.how, self.timed_out = f"{said} ({what})", timed_out


@dataclass(frozen=True, slots=True)
class Key:
    """The match of an entry: a number of `bits` (the field's), matched exactly, or for lpm by its first
    `prefix` bits.
    """

    value: int
    bits: int
    prefix: int | None = None

    def packed(self) -> list[Any]:
        """Encode it for Thrift."""
        data = self.value.to_bytes((self.bits + 7) // 8, "big")
        if self.prefix is None:
            exact = types.BmMatchParamExact(data)
            return [types.BmMatchParam(types.BmMatchParamType.EXACT, exact=exact)]
        lpm = types.BmMatchParamLPM(data, self.prefix)
        return [types.BmMatchParam(types.BmMatchParamType.LPM, lpm=lpm)]


@dataclass(frozen=True, slots=True)
class Action:
    """An action of the P4 program, and the values of its parameters, in their order."""

    name: str
    data: tuple[int, ...] = ()

    def packed(self) -> list[bytes]:
        """Encode the values for Thrift, each in the fewest bytes that hold it."""
        return [value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big") for value in self.data]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """An entry of a table, as read from the switch."""

    handle: int
    value: int  # of the key's only field
    prefix: int | None
    action: Action


@dataclass(slots=True)
class _Connection:
    transport: Any
    socket: Any
    standard: Any
    groups: Any
    target: Any


class SwitchClient:
    """A client of the switch `dpid`. Thread-safe. It connects at its first request, and again after a restart
    of the switch.
    """

    def __init__(self, dpid: Dpid, answer_s: float = ANSWER_S) -> None:
        self.name, self._port, self._answer_s = tor_name(dpid), thrift_port(dpid), answer_s
        self._connection: _Connection | None = None
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            if self._connection:
                self._connection.transport.close()
                self._connection = None

    # ------------------------------------------------------------------ the switch

    def uptime_us(self) -> int:
        """Return the time since the switch started. It answers this last: then everything else can be
        queried.
        """
        with self._speaking("uptime") as switch:
            return int(switch.target.get_time_elapsed_us())

    def program_digest(self) -> bytes:
        """Return the MD5 of the text of the running program."""
        with self._speaking("the program's digest") as switch:
            return bytes(switch.standard.bm_get_config_md5())

    def ports(self) -> dict[str, int]:
        """Return the port number of each device."""
        with self._speaking("ports") as switch:
            return {port.iface_name: port.port_num for port in switch.standard.bm_dev_mgr_show_ports()}

    def set_queue_depth(self, packets: int) -> None:
        """Limit how many packets may wait for each port; further ones are lost. The setting cannot be read
        back.
        """
        with self._speaking("queue depth") as switch:
            switch.target.set_all_egress_queue_depths(packets)

    # ------------------------------------------------------------------ tables

    def set_default(self, table: str, action: Action) -> None:
        """Set a table's default action."""
        with self._speaking(f"default of {table}") as switch:
            switch.standard.bm_mt_set_default_action(_CONTEXT, table, action.name, action.packed())
            self._same(
                f"default of {table}",
                action,
                _action(switch.standard.bm_mt_get_default_entry(_CONTEXT, table)),
            )

    def add_entry(self, table: str, key: Key, action: Action) -> int:
        """Add an entry and return its handle."""
        with self._speaking(f"entry of {table}") as switch:
            handle = switch.standard.bm_mt_add_entry(
                _CONTEXT, table, key.packed(), action.name, action.packed(), types.BmAddEntryOptions()
            )
            with self._begun(f"entry of {table}"):
                entry = _entry(switch.standard.bm_mt_get_entry(_CONTEXT, table, handle))
            self._same(f"entry of {table}", TableEntry(handle, key.value, key.prefix, action), entry)
            return int(handle)

    def replace_entry(self, table: str, handle: int, action: Action) -> None:
        """Replace an entry's action in one step: each packet meets either the old or the new action."""
        with self._speaking(f"entry of {table}") as switch:
            switch.standard.bm_mt_modify_entry(_CONTEXT, table, handle, action.name, action.packed())
            entry = _entry(switch.standard.bm_mt_get_entry(_CONTEXT, table, handle))
            self._same(f"entry of {table}", action, entry.action)

    def delete_entry(self, table: str, handle: int) -> None:
        with self._speaking(f"entry of {table}") as switch:
            switch.standard.bm_mt_delete_entry(_CONTEXT, table, handle)

    def entries(self, table: str) -> list[TableEntry]:
        """Return all entries of a table, unordered."""
        with self._speaking(f"entries of {table}") as switch:
            return [_entry(entry) for entry in switch.standard.bm_mt_get_entries(_CONTEXT, table)]

    # ------------------------------------------------------------------ multicast groups

    def add_group(self, group: int, ports: Iterable[int]) -> int:
        """Make a group of these ports; return its handle for `replace_group` and `delete_group`."""
        wanted = frozenset(ports)
        with self._speaking(f"group {group}") as switch:
            node = switch.groups.bm_mc_node_create(_CONTEXT, group, _port_map(wanted), "")
            with self._begun(f"group {group}"):
                switch.groups.bm_mc_mgrp_create(_CONTEXT, group)
                switch.groups.bm_mc_node_associate(_CONTEXT, group, node)
            self._same(f"group {group}", wanted, self.groups().get(group))
            return int(node)

    def replace_group(self, group: int, handle: int, ports: Iterable[int]) -> None:
        """Replace a group's ports in one step."""
        wanted = frozenset(ports)
        with self._speaking(f"group {group}") as switch:
            switch.groups.bm_mc_node_update(_CONTEXT, handle, _port_map(wanted), "")
            self._same(f"group {group}", wanted, self.groups().get(group))

    def delete_group(self, group: int, handle: int) -> None:
        with self._speaking(f"group {group}") as switch:
            switch.groups.bm_mc_node_dissociate(_CONTEXT, group, handle)
            with self._begun(f"group {group}"):
                switch.groups.bm_mc_node_destroy(_CONTEXT, handle)
                switch.groups.bm_mc_mgrp_destroy(_CONTEXT, group)

    def groups(self) -> dict[int, frozenset[int]]:
        """Return the ports of each group."""
        with self._speaking("groups") as switch:
            dump = json.loads(switch.groups.bm_mc_get_entries(_CONTEXT))
        ports = {handle["handle"]: frozenset(handle["ports"]) for handle in dump["l2_handles"]}
        nodes = {handle["handle"]: ports[handle["l2_handle"]] for handle in dump["l1_handles"]}
        return {
            group["id"]: frozenset().union(*(nodes[node] for node in group["l1_handles"]))
            for group in dump["mgrps"]
        }

    # ------------------------------------------------------------------ registers and counters

    def fill_register(self, name: str, start: int, end: int, value: int) -> None:
        """Write the cells from `start` to before `end`; read the first and the last one back."""
        with self._speaking(f"register {name}") as switch:
            switch.standard.bm_register_write_range(_CONTEXT, name, start, end, value)
            for index in {start, end - 1} if end > start else ():
                read = switch.standard.bm_register_read(_CONTEXT, name, index)
                self._same(f"register {name}, cell {index}", value, read)

    def register(self, name: str) -> list[int]:
        """Return all cells. Values of more than 63 bits are truncated to a signed 64-bit number."""
        with self._speaking(f"register {name}") as switch:
            return [int(value) for value in switch.standard.bm_register_read_all(_CONTEXT, name)]

    def counters(self, name: str, indices: Sequence[int]) -> list[int]:
        """Return the packet counts at these indices; all requests are sent before the first answer
        is read.
        """
        with self._speaking(f"counter {name}") as switch:
            for index in indices:
                switch.standard.send_bm_counter_read(_CONTEXT, name, index)
            try:
                return [int(switch.standard.recv_bm_counter_read().packets) for _ in indices]
            except types.InvalidCounterOperation:
                self.close()  # further answers are still to come
                raise

    # ------------------------------------------------------------------ the connection

    @contextmanager
    def _speaking(self, what: str) -> Iterator[_Connection]:
        """Hold the connection exclusively; failures become one line that names the switch. A broken
        connection is dropped.

        A refusal raises TestbedError, a missing answer NoAnswerError.
        """
        with self._lock:
            try:
                yield self._connected()
            except _REFUSALS as refusal:
                raise TestbedError(f"{self.name}'s {BINARY}: {what}: {_reason(refusal)}") from refusal
            except (TException, OSError, EOFError) as error:
                self.close()
                cause = error.inner if isinstance(error, TTransportException) and error.inner else error
                timed_out = isinstance(cause, TimeoutError)
                late = f"did not answer within {self._answer_s:g} s"
                said = late if timed_out else str(error) or type(error).__name__
                raise NoAnswerError(self.name, what, said, timed_out) from error
            except BaseException:
                self.close()  # an answer may be under way that would be read as the next one's
                raise

    @contextmanager
    def _begun(self, what: str) -> Iterator[None]:
        """Convert a refusal to SettingError: after a part was executed, it leaves the switch in a state that
        was not requested.
        """
        try:
            yield
        except _REFUSALS as refusal:
            raise SettingError(f"{self.name}'s {BINARY}: {what}: half done: {_reason(refusal)}") from refusal

    def _connected(self) -> _Connection:
        if self._connection and _is_stale(self._connection.socket.handle):
            self.close()
        if self._connection is None:
            socket = TSocket("127.0.0.1", self._port)
            socket.setTimeout(self._answer_s * 1000)
            transport = TBufferedTransport(socket)
            transport.open()
            protocol = TBinaryProtocol(transport)
            services = [
                TMultiplexedProtocol(protocol, name)
                for name in ("standard", "simple_pre_lag", "simple_switch")
            ]
            standard, groups, target = services
            self._connection = _Connection(
                transport,
                socket,
                Standard.Client(standard),
                SimplePreLAG.Client(groups),
                SimpleSwitch.Client(target),
            )
        return self._connection

    def _same(self, what: str, wanted: object, read: object) -> None:
        if wanted != read:
            raise SettingError(f"{self.name}'s {BINARY}: {what}: set {wanted}, read back {read}")


def _is_stale(handle: Any) -> bool:
    """Return whether the connection is readable before a request: the switch never sends unasked, so its end
    is closed.
    """
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


# The refusals of a switch; the connection remains usable.
_REFUSALS = (
    types.InvalidTableOperation,
    types.InvalidCounterOperation,
    types.InvalidRegisterOperation,
    types.InvalidDevMgrOperation,
    groups_types.InvalidMcOperation,
)
_CODES: tuple[tuple[type[Exception], Any], ...] = (
    (types.InvalidTableOperation, types.TableOperationErrorCode),
    (types.InvalidCounterOperation, types.CounterOperationErrorCode),
    (types.InvalidRegisterOperation, types.RegisterOperationErrorCode),
    (types.InvalidDevMgrOperation, types.DevMgrErrorCode),
    (groups_types.InvalidMcOperation, groups_types.McOperationErrorCode),
)


def _reason(refusal: Any) -> str:
    codes: Any = next(codes for kind, codes in _CODES if isinstance(refusal, kind))
    name: str = codes._VALUES_TO_NAMES.get(refusal.code, f"refused with code {refusal.code}")
    return name.lower().replace("_", " ")


def _port_map(ports: Iterable[int]) -> str:
    """Encode ports as binary digits, the highest port first."""
    return format(sum(1 << port for port in ports), "b")


def _action(answer: Any) -> Action:
    values = tuple(int.from_bytes(value, "big") for value in answer.action_data or ())
    return Action(answer.action_name, values)


def _entry(answer: Any) -> TableEntry:
    (match,) = answer.match_key
    held = match.lpm or match.exact
    prefix = match.lpm.prefix_length if match.lpm else None
    return TableEntry(
        answer.entry_handle, int.from_bytes(held.key, "big"), prefix, _action(answer.action_entry)
    )
