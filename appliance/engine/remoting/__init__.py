"""Connections: sockets, frames on their way in and answers on their way out, and which handler gets a request."""
