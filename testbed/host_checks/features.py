"""The features that the testbed can use, and the results of trying them. Pure data; imports nothing of the
project.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SET_UP = "sudo make setup"
INSTALLED = "apt-get install {}"
INSTALLED_PYTHON = (
    "apt-get install {}, and install optinc into an environment that sees it: "
    "python3 -m venv --system-site-packages"
)
KERNEL = "a kernel built with {}; in a virtual machine choose Debian's linux-image-amd64"
P4_TOOLS = "sudo make p4-tools"
RYU = "sudo make ryu"


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that the testbed may need from a host. `remedy` says what to do if it is missing."""

    name: str
    what: str
    remedy: str
    required: bool = True
    needs: tuple[str, ...] = ()  # features that are tried first; if they fail, this one is not tried
    packages: tuple[
        str, ...
    ] = ()  # Debian's, where SET_UP is the remedy: for an installed copy, which has no set-up


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of trying a feature: `detail` is what was seen, or the reason of failure, in one line.
    `broken`: nothing is known about the feature, because the probe itself has a defect.
    """

    name: str
    works: bool
    detail: str
    tried: bool = True
    broken: bool = False
    remedy: str | None = None  # a remedy for this host in particular, instead of the feature's


class ProbeFailure(Exception):
    """A feature was tried and does not work; the message says why, in one line, and `remedy` what helps on
    this host in particular.
    """

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


def broken(name: str, error: Exception) -> ProbeResult:
    """Return the result for a probe that raised an error which no lack of a host explains."""
    said = " ".join(str(error).split())
    return ProbeResult(
        name, False, f"{type(error).__name__}: {said}" if said else type(error).__name__, broken=True
    )


NAMESPACES = ("root", "namespaces")

FEATURES: tuple[Feature, ...] = (
    Feature("root", "run by root", "run it with sudo"),
    Feature("cores", "processor cores", "2 or more cores", required=False),
    Feature("memory", "memory", "4 GiB or more for the default configuration", required=False),
    Feature(
        "memlock",
        "raise the limit of locked memory",
        "harmless since Linux 5.11",
        required=False,
        needs=("root",),
    ),
    Feature(
        "capabilities",
        "root's capabilities that a testbed needs",
        "start this with all of root's capabilities",
        needs=("root",),
    ),
    Feature(
        "tun",
        "the device of tap interfaces",
        f"modprobe tun; else {KERNEL.format('CONFIG_TUN')}",
        needs=("root",),
    ),
    Feature("environment", "the project's Python environment", SET_UP),
    Feature("torch", "torch, with the backend `inc`", SET_UP, needs=("environment",)),
    Feature("os-ken", "the OpenFlow controller's library", SET_UP, needs=("environment",)),
    Feature("ryu", "ryu itself, for --controller ryu", RYU, required=False, needs=("environment",)),
    Feature("mininet", "Mininet and its mnexec", SET_UP, needs=("environment",), packages=("mininet",)),
    Feature("bcc", "BCC's Python package", SET_UP, needs=("environment",), packages=("python3-bpfcc",)),
    Feature("headers", "kernel headers for BCC", SET_UP, packages=("linux-headers-amd64",)),
    Feature(
        "namespaces",
        "network, mount, PID, IPC and UTS namespaces",
        "a privileged container or a whole machine",
        needs=("root", "capabilities"),
    ),
    Feature(
        "cgroups",
        "limits of what processes use of the cores",
        "not needed, but for `cpus` of hosts: a whole machine, or a container that may write cgroups",
        required=False,
        needs=("root",),
    ),
    Feature("veth", "veth pairs that carry frames", KERNEL.format("CONFIG_VETH"), needs=NAMESPACES),
    Feature("tbf", "token bucket shaping", KERNEL.format("CONFIG_NET_SCH_TBF"), needs=(*NAMESPACES, "veth")),
    Feature(
        "mirred",
        "redirection from ingress to another device",
        KERNEL.format("CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED"),
        needs=(*NAMESPACES, "veth"),
    ),
    Feature(
        "xdp",
        "native XDP on veth, compiled by BCC",
        KERNEL.format("CONFIG_BPF_SYSCALL"),
        needs=(*NAMESPACES, "veth", "headers", "bcc"),
    ),
    Feature(
        "marks",
        "marks on frames that wait in links, by a BPF program",
        KERNEL.format("CONFIG_NET_CLS_BPF and CONFIG_NET_CLS_ACT"),
        needs=(*NAMESPACES, "veth", "mirred", "headers", "bcc"),
    ),
    Feature("mmap", "BPF arrays mapped into a process", "Linux 5.5 or newer", needs=("xdp",)),
    Feature(
        "broadcast",
        "XDP broadcast through a device map",
        "Linux 5.14 or newer",
        needs=("xdp",),
    ),
    Feature(
        "programs",
        "the testbed's own XDP programs, and maps within maps",
        "a newer kernel (apt-get install -t bookworm-backports linux-image-amd64)",
        needs=("xdp",),
    ),
    Feature(
        "ticks",
        "a sum that a tick completes, by the testbed's own programs",
        "a newer kernel (apt-get install -t bookworm-backports linux-image-amd64)",
        needs=("programs",),
    ),
    Feature(
        "bursts",
        "bursts of packets that the kernel cuts (UDP_SEGMENT)",
        "without it each packet is sent by itself, which costs a worker up to half as much again",
        required=False,
        needs=(*NAMESPACES, "veth", "tbf", "mirred"),
    ),
    Feature(
        "jumbo",
        "frames of 9,000 bytes, for an mtu beyond 3476",
        KERNEL.format("CONFIG_BRIDGE"),
        required=False,
        needs=("xdp",),
    ),
    Feature(
        "ovs",
        "Open vSwitch of one's own, user-space datapath",
        SET_UP,
        needs=(*NAMESPACES, "veth", "tun"),
        packages=("openvswitch-switch",),
    ),
    Feature(
        "ovs-kernel",
        "Open vSwitch's kernel datapath",
        "not needed: the user-space datapath serves; or " + KERNEL.format("CONFIG_OPENVSWITCH"),
        required=False,
        needs=NAMESPACES,
    ),
    Feature(
        "netem",
        "links that delay by the kernel: netem within a token bucket",
        "not needed: a thread of the testbed delays frames; or " + KERNEL.format("CONFIG_NET_SCH_NETEM"),
        required=False,
        needs=(*NAMESPACES, "veth"),
    ),
    Feature(
        "bmv2",
        "BMv2's simple_switch, for the engine bmv2",
        P4_TOOLS,
        required=False,
        needs=("environment", *NAMESPACES, "veth"),
    ),
    Feature("p4c", "the P4 compiler, to change p4/", P4_TOOLS, required=False),
)
BY_NAME = {feature.name: feature for feature in FEATURES}


def lacks(findings: Sequence[ProbeResult]) -> list[ProbeResult]:
    """Return the required features among `findings` that were tried and do not work: mending these mends the
    rest.
    """
    return [
        finding
        for finding in findings
        if BY_NAME[finding.name].required and finding.tried and not finding.works
    ]


def remedy_of(finding: ProbeResult, checkout: bool = True) -> str:
    """Return what to do about a missing feature; `checkout`: this is a checkout, where set-up installs what
    is missing.
    """
    feature = BY_NAME[finding.name]
    if finding.remedy or checkout or feature.remedy != SET_UP:
        return finding.remedy or feature.remedy
    if not feature.packages:
        return "pip install optinc again, with all that it requires"
    text = INSTALLED_PYTHON if "environment" in feature.needs else INSTALLED
    return text.format(" ".join(feature.packages))


def with_needs(names: Sequence[str]) -> list[str]:
    """Return `names` and everything that they need, needs first, otherwise in the order of FEATURES."""
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending += BY_NAME[name].needs
    return [feature.name for feature in FEATURES if feature.name in wanted]
