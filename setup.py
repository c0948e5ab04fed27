"""What pyproject.toml cannot say: `templates/` and `static/` lie beside the package here, and inside it in a wheel; and
the compiled part, which is left out where it cannot be built."""

import sys

from setuptools import Extension, find_packages, setup

BESIDE = ("templates", "static")
HOTPATH = "appliance/engine/hotpath"


def compiled_part() -> list[Extension]:
    """The one extension; none without Cython, and none in the end where no C compiler is."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("setup.py: Cython is not there, the compiled part is left out", file=sys.stderr)
        return []
    extension = Extension(
        "appliance.engine.hotpath._compiled",
        [f"{HOTPATH}/_compiled.pyx"],
        depends=[f"{HOTPATH}/{name}.pxi" for name in ("states", "headers", "send", "frames", "sockets")],
        extra_compile_args=["-O3", "-g0"],
        optional=True,
    )
    return cythonize([extension], quiet=True)


setup(
    packages=[*find_packages(include=["appliance*", "spark_reports*"]), *(f"appliance.{name}" for name in BESIDE)],
    package_dir={"": ".", **{f"appliance.{name}": name for name in BESIDE}},
    package_data={
        "appliance.console": ["locale/*/LC_MESSAGES/django.mo"],
        **{f"appliance.{name}": ["**/*"] for name in BESIDE},
    },
    ext_modules=compiled_part(),
)
