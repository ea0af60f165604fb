"""The OpenFlow application: turns switch events into calls of `Conductor`. Makes no decisions."""

from __future__ import annotations

import logging
import threading
from typing import Any

from controller.adapter import API
from controller.conductor import Conductor
from controller.management import Management
from controller.switch import Switch
from testbed.errors import TestbedError
from testbed.topology.addresses import OXC_DPID, Dpid

LOG = logging.getLogger("controller")
CONFIG, MAIN, DEAD = (
    API.handler.CONFIG_DISPATCHER,
    API.handler.MAIN_DISPATCHER,
    API.handler.DEAD_DISPATCHER,
)
on = API.handler.set_ev_cls
Application: Any = API.application


class SwitchesApp(Application):
    """Passes switches to the conductor. Set `conductor` before making the application, and `management` for
    the optical switch, whose changes may be large.
    """

    OFP_VERSIONS = (API.protocol.OFP_VERSION,)
    conductor: Conductor
    management: Management | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._switches: dict[
            Any, Switch
        ] = {}  # by connection: a switch may reconnect before its old connection ends
        self._ports: dict[Any, set[int]] = {}  # by connection, the ports with carrier

    @on(API.events.EventOFPStateChange, [MAIN, DEAD])
    def on_state(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == MAIN:
            management = self.management if datapath.id == OXC_DPID else None
            if management:
                management.close()  # the switch may be another process than before
            switch = self._switches[datapath] = Switch(datapath, management)
            self._ports[datapath] = {
                port.port_no for port in datapath.ports.values() if self._has_carrier(port)
            }
            self.conductor.carriers(switch.dpid, self._ports[datapath])
            # on another thread: this one delivers the replies for which `connected` waits
            threading.Thread(
                target=self._connected, args=(switch,), name=f"switch-{datapath.id:#x}", daemon=True
            ).start()
            return
        self._ports.pop(datapath, None)
        gone = self._switches.pop(datapath, None)
        if gone is not None:
            gone.handle_end()
            self.conductor.disconnected(gone)

    @on(API.events.EventOFPBarrierReply, MAIN)
    def on_barrier(self, event: Any) -> None:
        self._reply(event.msg, [])

    @on(API.events.EventOFPFlowStatsReply, MAIN)
    def on_flow_stats(self, event: Any) -> None:
        self._reply(event.msg, event.msg.body)

    @on(API.events.EventOFPAggregateStatsReply, MAIN)
    def on_count(self, event: Any) -> None:
        self._reply(event.msg, [event.msg.body])

    @on(API.events.EventOFPPortStatus, MAIN)
    def on_port(self, event: Any) -> None:
        message = event.msg
        ports = self._ports.get(message.datapath)
        if ports is None:
            return
        is_there = message.reason != message.datapath.ofproto.OFPPR_DELETE
        if is_there and self._has_carrier(message.desc):
            ports.add(message.desc.port_no)
        else:
            ports.discard(message.desc.port_no)
        self.conductor.carriers(Dpid(message.datapath.id), ports)

    @staticmethod
    def _has_carrier(port: Any) -> bool:
        return not port.state & API.protocol.OFPPS_LINK_DOWN

    @on(API.events.EventOFPErrorMsg, [CONFIG, MAIN])
    def on_error(self, event: Any) -> None:
        message = event.msg
        LOG.error(
            "switch %#x: OpenFlow error type %d code %d", message.datapath.id or 0, message.type, message.code
        )
        switch = self._switches.get(message.datapath)
        if switch:
            switch.handle_error(f"OpenFlow error type {message.type} code {message.code}")

    def _reply(self, message: Any, entries: list[Any]) -> None:
        switch = self._switches.get(message.datapath)
        if switch:
            more = bool(getattr(message, "flags", 0) & message.datapath.ofproto.OFPMPF_REPLY_MORE)
            switch.handle_reply(message.xid, entries, more)

    def _connected(self, switch: Switch) -> None:
        try:
            self.conductor.connected(switch)
        except TestbedError as error:
            # `ready` stays false, and `lacks` gives the reason
            LOG.error("switch %#x: %s", switch.dpid, error)
