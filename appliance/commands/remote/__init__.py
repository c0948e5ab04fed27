"""The commands that call a running server through its REST API: `rocketbox topic list` and similar ones.

`console/acts` lists them; `run.py` reads a command line by it, `client.py` calls the server, `show.py` prints.
"""
