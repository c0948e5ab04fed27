# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, auto_pickle=False
"""The compiled twin; see `__init__.py` for what it is and `pure.py` for the reference.

One module, cut into files by subject. Rules that hold in all of them:

- Code runs with the GIL, on the thread that owns the data it touches, unless a line says `nogil`.
- A frame changes nothing before it is certain that all of it is taken. Unusual frames are left to the Python code.
- No pointer into a Python object outlives a call into Python: that call may replace the stage, the tail or the route.
"""

cimport cython

cdef extern from *:
    """
    #ifndef ROCKETBOX_SOURCES
    #define ROCKETBOX_SOURCES 0
    #endif
    """
    const unsigned long ROCKETBOX_SOURCES

INTERFACE = 10
#: The number that `building.mark_of_sources` returned for the sources of this build.
SOURCES = ROCKETBOX_SOURCES

include "states.pxi"
include "system.pxi"
include "headers.pxi"
include "send.pxi"
include "pull.pxi"
include "guard.pxi"
include "frames.pxi"
include "sockets.pxi"
include "sync.pxi"
include "index.pxi"
include "filter.pxi"
include "replica.pxi"
