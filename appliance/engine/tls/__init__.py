"""TLS on the ports of the process, beside plain connections. Imported only if `tlsMode` asks for it.

The remoting server knows nothing of it. The first byte of a new connection decides (`door.py`): 0x16 begins a TLS
handshake, and no frame, since the length of a frame is at most 16 MiB. A plain connection goes to the server as without
TLS. The others are shaken hands with on a thread of their own (`handshakes.py`), so that neither hostile nor honest
handshakes hold up `remoting-io`. A tunnel (`tunnels.py`) then decrypts on a second thread, and passes the plain bytes
on through a socket pair. The other end of the pair is an ordinary connection of the server, with the address of the
peer, so both twins, their bounds and `sendfile` work as they do on a plain connection. The cost: two more
descriptors for a connection, and a copy for each direction.

Connections between brokers of one name have tunnels too, on a third thread (`between_brokers.py`): for the log, and
for what followers request.

`certificate.py` loads the pair of files, and loads it again when they change.
"""
