"""Connections: sockets, frames on their way in, answers on their way out, and the choice of a request's handler."""
