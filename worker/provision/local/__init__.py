"""The local provisioner: nodes are process sessions on this machine, under a simulated spot market.

    profile.py, supply.py, market.py, losses.py    the market: pure, time is an argument
    records.py, sessions.py, cloud.py              clusters as files and processes
    metadata.py, api.py, guard.py, __main__.py     the daemon that serves both over loopback
    provisioner.py                                 the client that the reconciler holds

Nothing here isolates a node from its machine: a node has its user's rights, as any process that the user starts.
"""
