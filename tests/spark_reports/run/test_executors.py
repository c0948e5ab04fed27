"""A cluster that cannot be used ends a run with a sentence: no master, no executor, no store on a node."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_reports.run.executors import check_master, watched
from spark_reports.run.failures import RunFailed, of_exception
from tests.support.ports import reserve_port


def test_a_master_that_nobody_listens_for() -> None:
    port = reserve_port()
    with pytest.raises(RunFailed) as caught:
        check_master(f"spark://127.0.0.1:{port}")
    assert caught.value.why == "master_unreachable"
    assert f"The Spark master spark://127.0.0.1:{port} cannot be reached" in str(caught.value)
    with pytest.raises(RunFailed, match=r"no HOST:PORT"):
        check_master("spark://nowhere")


def test_one_of_several_masters_is_enough_and_other_kinds_are_left_to_spark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        check_master(f"spark://127.0.0.1:{reserve_port()},127.0.0.1:{listening.getsockname()[1]}")
    check_master("local[2]")
    check_master("yarn")


class Session(SimpleNamespace):
    """A session whose one job waits until it is cancelled."""

    def __init__(self, executors: list[int]) -> None:
        self.cancelled = threading.Event()
        self.looked = threading.Event()

        def size() -> int:
            count = executors.pop(0) if len(executors) > 1 else executors[0]
            if len(executors) == 1:
                self.looked.set()
            return count + 1

        context = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=size))
        self.sparkContext = SimpleNamespace(
            _jsc=SimpleNamespace(sc=lambda: context), cancelAllJobs=self.cancelled.set
        )  # fmt: skip

    def job(self) -> None:
        assert self.cancelled.wait(60)
        raise ValueError("the job was cancelled")


def test_without_an_executor_the_job_is_cancelled_and_the_run_has_a_sentence() -> None:
    spark = Session([0])
    with pytest.raises(RunFailed) as caught, watched(spark, "spark://m:7077", 0.02, 0.005):
        spark.job()
    assert caught.value.why == "no_executor"
    assert str(caught.value).startswith("The Spark master spark://m:7077 had no executor for this run for 1 minutes")


def test_with_an_executor_a_job_goes_on_and_its_own_error_stays() -> None:
    spark = Session([0, 0, 1])

    def fail() -> None:
        assert spark.looked.wait(60)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"), watched(spark, "spark://m:7077", 60.0, 0.001):
        fail()
    assert not spark.cancelled.is_set()


def test_a_store_that_a_node_does_not_have_is_no_deleted_file(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from spark_reports.source.log_files import FileGone, LogFile, LogReader, StoreMissing

    log = tmp_path / "commitlog"
    with pytest.raises(StoreMissing) as caught:
        LogReader(LogFile(str(log / f"{0:020}"), 0, 10))
    log.mkdir()
    with pytest.raises(FileGone, match="has been deleted"):
        LogReader(LogFile(str(log / f"{0:020}"), 0, 10))
    told = f"Job aborted\n  spark_reports.source.log_files.StoreMissing: {caught.value}\n\n  at org.apache"
    failed = of_exception(RuntimeError(told), "/run")
    assert failed.why == "store_missing"
    assert str(failed) == f"The data directory is not on every node of the cluster: {caught.value}"
