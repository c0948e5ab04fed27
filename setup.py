"""What pyproject.toml cannot say: `templates/` and `static/` lie beside the package here, and inside it in a wheel; and
the compiled part, which is left out where it cannot be built.

Without it the package is pure Python and slower. ROCKETBOX_COMPILED=required makes that an error.
"""

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

BESIDE = ("templates", "static")
HOTPATH = Path("appliance/engine/hotpath")
REQUIRED = os.environ.get("ROCKETBOX_COMPILED") == "required"

building = runpy.run_path(str(HOTPATH / "building.py"))


def leave_out(why: str) -> None:
    if REQUIRED:
        sys.exit(f"setup.py: the compiled part cannot be built: {why}")
    print(f"setup.py: the compiled part is left out: {why}", file=sys.stderr)


def compiled_part() -> list[Extension]:
    """The one extension; none without Cython or a C compiler, and the wheel is one for every machine then."""
    why_not = "Cython is missing" if find_spec("Cython") is None else building["what_is_missing"]()
    if why_not:
        leave_out(why_not)
        return []
    return [
        Extension(
            "appliance.engine.hotpath._compiled",
            [str(HOTPATH / "_compiled.pyx")],
            depends=[str(path) for path in sorted(HOTPATH.glob("*.pxi"))],
            define_macros=[("ROCKETBOX_SOURCES", f"{building['mark_of_sources'](HOTPATH)}UL")],
            # Who sets CFLAGS says how much to optimise.
            extra_compile_args=["-g0"] if "CFLAGS" in os.environ else ["-O3", "-g0"],
            optional=True,
        )
    ]


class BuildCompiledPart(build_ext):
    """Builds all of it each time: that is a matter of seconds, and time stamps do not tell what changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.force = True

    def build_extension(self, ext: Extension) -> None:
        """As ever; but what goes wrong, in Cython too, leaves the extension out."""
        # What an earlier build left would be packed in its place.
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        try:
            super().build_extension(ext)
        except Exception as error:
            leave_out(f"{type(error).__name__}: {error}")


setup(
    packages=[
        *find_packages(include=["appliance*", "spark_reports*", "pyspark_rocketbox"]),
        *(f"appliance.{name}" for name in BESIDE),
    ],
    package_dir={"": ".", **{f"appliance.{name}": name for name in BESIDE}},
    package_data={
        "appliance.console": ["locale/*/LC_MESSAGES/django.mo"],
        **{f"appliance.{name}": ["**/*"] for name in BESIDE},
    },
    ext_modules=compiled_part(),
    cmdclass={"build_ext": BuildCompiledPart},
)
