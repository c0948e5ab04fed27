"""The commands that speak to a running server through its REST API: `rocketbox topic list` and its kin.

`table.py` says which there are; `run.py` reads a command line by it, `client.py` asks the server, `show.py` prints.
"""
