"""Decodes message bodies by a schema that an operator gave for their topic. PURE; loaded when a topic has a schema.

Bodies come from strangers: an array of 2**60 nulls takes 10 bytes in Avro. So each decoding has a `Work`, which bounds
values, depth and characters of the result. The libraries for both formats have no such bounds, and a loop in C holds
the GIL meanwhile; so the readers here are RocketBox's own. They only decode.
"""
