"""Run programs in hosts: ping one host from another, and measure the rate between them by iperf.

A program in a host has that host's network. Here each link has 20 Mb/s.

Prints "3 packets transmitted, 3 received, 0% packet loss" and "... Mbits/sec".
"""

from concurrent.futures import ThreadPoolExecutor

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 20}
CLIENT = ("iperf", "-c", "u1h2", "-t", 1, "--connect-retries", 10)  # the server may start later

with Testbed(RACK) as testbed, ThreadPoolExecutor() as pool:
    print(testbed.exec("u1h1", "ping", "-c", 3, "-i", 0.2, "u1h2").stdout)
    server = pool.submit(testbed.exec, "u1h2", "iperf", "-s", "-P", 1)
    print(testbed.exec("u1h1", *CLIENT).stdout)
    server.result()
