"""What pyproject.toml cannot say: `templates/` and `static/` lie beside the package here, and inside it in a wheel."""

from setuptools import find_packages, setup

BESIDE = ("templates", "static")

setup(
    packages=[*find_packages(include=["appliance*", "spark_reports*"]), *(f"appliance.{name}" for name in BESIDE)],
    package_dir={"": ".", **{f"appliance.{name}": name for name in BESIDE}},
    package_data={
        "appliance.console": ["locale/*/LC_MESSAGES/django.mo"],
        **{f"appliance.{name}": ["**/*"] for name in BESIDE},
    },
)
