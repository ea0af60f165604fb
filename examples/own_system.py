"""Write an aggregation system: a class in a file that decides who sums what.

Here hosts sum in a chain, and no switch does (examples/parts/chain.py). The links show it: the host in the
middle receives twice as many bytes as it sends, namely the sum of the host behind it and the result.

Prints "20 sums of 50000 values by 3 workers, all exact" and "u1h2 ... MB up ... MB down".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 3}], "scale": 1, "host_rate_mbps": 100}
CHAIN = "examples/parts/chain.py:Chain"

with Testbed(RACK) as testbed:
    result = testbed.run("examples/jobs/sums.py", 50_000, 20, place="u1:3", sync=CHAIN, preload=True)
    for host, line in result.output:
        print(f"{host}: {line}")
    links = result.links
    for link, up, down in zip(links.link, links.bytes_up, links.bytes_down, strict=True):
        print(f"{link} {up / 1e6:5.1f} MB up {down / 1e6:5.1f} MB down")
