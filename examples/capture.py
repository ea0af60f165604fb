"""Capture a worker's packets in a pcap file while a job sums, and count them by operation.

Scapy decodes gradient packets once `testbed.wire.scapy_layer` is imported; Wireshark decodes them by
wireshark/optinc.lua.

Prints "200 frames of u1h1", "sent PUSH: ..." and "received RESULT: ...".
"""

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scapy.utils import rdpcap

from testbed import Testbed
from testbed.wire.scapy_layer import GradientPacket

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}

with Testbed(RACK) as testbed, ThreadPoolExecutor() as pool, tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "u1h1.pcap"
    capture = pool.submit(testbed.capture, "u1h1", file, count=200, seconds=60)
    testbed.run("examples/jobs/sums.py", 20_000, 5, place="u1:2", preload=True)
    frames = capture.result()
    print(f"{frames['forward'] + frames['backward']} frames of {frames['link']}")
    counts = Counter(
        f"{'sent' if packet['IP'].src == '10.0.1.1' else 'received'} {packet.sprintf('%GradientPacket.op%')}"
        for packet in rdpcap(str(file))
        if GradientPacket in packet
    )
    for operation, count in sorted(counts.items()):
        print(f"{operation}: {count}")
