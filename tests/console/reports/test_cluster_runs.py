"""A run whose counting a standalone cluster does: a really started master and two workers without RocketBox."""

from __future__ import annotations

import pytest

from appliance.console import reports
from appliance.console.reports import records
from appliance.console.reports.report_settings import ReportSettings
from tests.spark_reports.run.again import make_again, reports_of
from tests.spark_reports.support.cluster import Cluster

#: Settings of an administrator of a small cluster; SPARK_CONF_DIR names the directory.
DEFAULTS = """
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.executor.memory 512m
spark.executor.cores 1
spark.executorEnv.SPARK_LOCAL_IP 127.0.0.1
"""


@pytest.mark.nightly
def test_a_cluster_makes_the_same_bytes(running, runner, request_of, tmp_path):
    for n in range(50):
        running.put("Orders", b"x" * (n + 1), queue=n % 4)
    asked = request_of("admin")
    reports.save_settings(asked, ReportSettings(engine="python"))
    record = reports.start(asked)
    assert runner.step()
    folder = records.folder(record.id)
    place = tmp_path / "cluster"
    (place / "conf").mkdir(parents=True)
    (place / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    with Cluster(place) as cluster:
        variables = {
            "SPARK_CONF_DIR": str(place / "conf"),
            "PYSPARK_PYTHON": str(cluster.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        outcome, again = make_again(folder, place, variables, engine="spark", master=cluster.master, driver_mib=512)
    assert outcome.ok, (outcome.error, (again / "log").read_text() if (again / "log").exists() else "")
    assert outcome.versions["master"].startswith("spark://")
    assert outcome.rows == 50
    assert reports_of(again) == reports_of(folder)
