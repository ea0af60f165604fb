"""Configure the rates of single links, and read back the rates that the kernel has.

A configuration declares the rates of a data centre's links, and the scale divides them. A link's rate can be
changed by hand while the testbed runs, and reset.

Prints "u1h1 has 200 Mb/s", "u1h2 has 50 Mb/s", "by hand u1h1 has 20 Mb/s" and "reset u1h1 has 200 Mb/s".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "host_rate_mbps": 40_000, "links": {"u1h2": 10_000}, "scale": 200}

with Testbed(RACK) as testbed:
    for link in testbed.links.now():
        print(f"{link['link']} has {link['rate_mbps']:g} Mb/s")
    (slowed,) = testbed.links.set("u1h1", rate_mbps=20)
    print(f"by hand {slowed['link']} has {slowed['rate_mbps']:g} Mb/s")
    (reset,) = testbed.links.reset("u1h1")
    print(f"reset {reset['link']} has {reset['rate_mbps']:g} Mb/s")
