"""The one extension of the wheel rocketbox-client-speedups."""

import os

from setuptools import Extension, setup

NAME = "rocketbox_client_speedups"
# Who sets CFLAGS says how much to optimise.
FLAGS = [] if os.name != "posix" else ["-g0"] if "CFLAGS" in os.environ else ["-O3", "-g0"]

setup(ext_modules=[Extension(NAME, [f"{NAME}.pyx"], extra_compile_args=FLAGS)])
