"""Train with one script in three ways: its gradients summed by the switch, in a ring, and by a parameter
server.

The script is the same each time: `sync` decides who sums. The losses agree, and the bytes on the links show
the ways' differences.

Prints "sync   ms an iteration  MB on links  loss", "inc ...", "ring ..." and "ps ...".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 4}], "scale": 1, "host_rate_mbps": 50}

with Testbed(RACK) as testbed:
    print("sync   ms an iteration  MB on links  loss")
    for sync in ("inc", "ring", "ps"):
        result = testbed.run("examples/jobs/train.py", place="u1:3", sync=sync, preload=True)
        assert result.iteration_ms is not None
        print(
            f"{sync:5}  {result.iteration_ms.mean():15.1f}  {result.link_bytes / 1e6:11.1f}  "
            f"{result.reported['loss']:.4f}"
        )
