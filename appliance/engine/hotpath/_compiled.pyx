# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, auto_pickle=False
"""The compiled twin; see `__init__.py` for what it is and `pure.py` for the reference.

One module, cut into files by what they do. Rules that hold in all of them:

- Everything here runs with the GIL, on the thread that owns what it touches, unless a line says `nogil`.
- Nothing is changed before it is certain that a frame is taken as a whole. What is not usual is left to the Python code.
- No pointer into a Python object outlives a call into Python: a stage, a tail or a route may be another one behind it.
"""

cdef extern from *:
    """
    #ifndef ROCKETBOX_SOURCES
    #define ROCKETBOX_SOURCES 0
    #endif
    """
    const unsigned long ROCKETBOX_SOURCES

INTERFACE = 4
#: What `building.mark_of_sources` said when this was built.
SOURCES = ROCKETBOX_SOURCES

include "states.pxi"
include "system.pxi"
include "headers.pxi"
include "send.pxi"
include "pull.pxi"
include "frames.pxi"
include "sockets.pxi"
include "index.pxi"
include "filter.pxi"
include "replica.pxi"
