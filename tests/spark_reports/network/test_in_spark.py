"""`spark.read.format("rocketbox")` with brokers: rows, plans and errors as users see them."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from spark_reports import RocketBoxDataSource
from spark_reports.source.network.access import Access
from spark_reports.source.network.routes import NameServers
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

SECRET = "nobody-may-see-this"


@pytest.fixture
def rocketbox(spark):
    spark.dataSource.register(RocketBoxDataSource)
    return spark.read.format("rocketbox")


def routed(engine, *topics):
    """Wait until the name server knows the topics: it is told of a new one behind the answer to its first send."""
    names = NameServers(Access((engine.engine.namesrv_address,)))
    wait_for(lambda: set(topics) <= set(names.topics()), "the name server knows them")


def test_brokers_give_the_rows_that_the_files_give(rocketbox, engine, tmp_path):
    for queue in range(4):
        engine.put("Orders", *[b"%d-%d" % (queue, number) for number in range(100)], queue=queue)
    engine.put("Other", b"one", properties="TAGS\x01paid\x02KEYS\x01a b\x02")
    routed(engine, "Orders", "Other")
    store = engine.engine.broker.store
    wait_for(
        lambda: (p := store.files.recovery_position.position) and p.offset == store.published,
        "the queues' files, which are written behind the log",
    )
    over = rocketbox.options(brokers=engine.engine.namesrv_address, columns="body").load()
    files = rocketbox.options(brokers="", store=str(tmp_path), columns="body").load()
    order = ["topic", "queue_id", "queue_offset"]
    assert over.schema == files.schema
    # Maps cannot be compared in Spark.
    assert over.count() == 401
    assert over.drop("broker").orderBy(*order).toArrow() == files.drop("broker").orderBy(*order).toArrow()
    assert [row.broker for row in over.select("broker").distinct().collect()] == ["broker-a"]
    assert [row.broker for row in files.select("broker").distinct().collect()] == [None]  # a log does not contain it


def test_the_secret_is_in_no_plan_and_no_error(rocketbox, spark, engine, capsys):
    engine.put("Orders", b"one")
    routed(engine, "Orders")
    options = {"brokers": engine.engine.namesrv_address, "accessKey": "reader", "secretKey": SECRET}
    rows = rocketbox.options(**options, topic="Orders").load()
    assert rows.count() == 1
    rows.explain(mode="extended")
    rows.where("queue_id = 0").explain(mode="formatted")
    assert "rocketbox" in capsys.readouterr().out.lower()
    plans = rows._jdf.queryExecution().toString()
    assert SECRET not in plans
    with pytest.raises(PySparkException) as failed:
        spark.read.format("rocketbox").options(**options, topic="Nowhere").load().count()
    assert SECRET not in str(failed.value)
    assert "knows no topic Nowhere" in str(failed.value)
    assert SECRET not in capsys.readouterr().out


def test_a_server_that_is_not_there_is_named(rocketbox):
    address = f"127.0.0.1:{reserve_port()}"
    with pytest.raises(PySparkException, match=f"{address} cannot be reached: Connection refused"):
        rocketbox.options(brokers=address, topic="Orders").load().count()


def test_an_empty_topic_has_no_rows(rocketbox, engine):
    engine.put("Orders", b"one")
    routed(engine, "Orders")
    namesrv = engine.engine.namesrv_address
    assert rocketbox.options(brokers=namesrv, topic="Orders", startingOffsets="latest").load().count() == 0
