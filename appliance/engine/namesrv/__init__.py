"""The name server: which broker serves which topic, key-values, and its settings.

105 (routes) runs inline from cached JSON. Every change of a table goes through the pool `namesrv`, the only writer. A
broker that closes its connection is removed at once, a silent one after 120 s. Our own broker registers over the
loopback (`broker/registration.py`) and announces changed topics by a call (`Registration.tell_directly`) on the same
pool. In a period without a change it sends only the version of its table (`SameTable`), if the last answer came from
RocketBox. Request 17 is answered when the name servers that answer at all have the topic.
"""
