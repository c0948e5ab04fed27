"""mqadmin of 4.9.8 and 5.3.3 against RocketBox: every command prints what it printed when it was recorded.

One run a version goes through all of them in the recording's order and with its names; each test looks at one command.
Compared is the form (`mqadmin.form`): labels, columns, names; what the numbers must be is asked by tests of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients import mqadmin
from tests.clients.agents import Agent, PushConsumer
from tests.clients.conftest import start, wait_for_clients
from tests.clients.messages import Json, Message
from tests.clients.programs import JAVA_VERSIONS
from tests.support.directories import shared_directory
from tests.support.effort import NIGHTLY
from tests.support.option_names import NOT_APACHES
from tests.support.server import Server

pytestmark = pytest.mark.own


CONF = """
brokerName=broker-a
flushConsumerOffsetInterval=500
"""


class Run:
    """All commands, once: label -> what was printed; and what the tests ask besides."""

    def __init__(self, agent: Agent, server: Server) -> None:
        self.agent = agent
        self.server = server
        self.printed: dict[str, str] = {}
        self.received: list[Json] = []  # again, after the reset
        self.version = agent.name.removeprefix("java-")

    def __call__(self, line: str, label: str | None = None) -> str:
        line = line.replace("BROKER", self.server.broker)
        printed = mqadmin.run(self.agent, self.server.namesrv, line)
        self.printed[label or line.split()[0]] = printed
        return printed

    def everything(self) -> None:
        self.topics()
        self.groups()
        self.clients()
        self.broker()
        self.deletions()

    def topics(self) -> None:
        """Topics of the recording's names are made, changed and looked at."""
        self("updateTopic -c DefaultCluster -t MadeByAdmin -r 4 -w 4 -p 6")
        self("updateTopic -b BROKER -t MadeByAdmin -r 8 -w 8", "updateTopic-broker")
        self("updateTopic -c DefaultCluster -t AdminTopic -r 4 -w 4", "AdminTopic")
        self("updateTopic -c DefaultCluster -t OrderedByAdmin -r 2 -w 2 -o true", "updateTopic-order")
        self("updateOrderConf -t OrderedByAdmin -m get")
        self("updateTopicPerm -c DefaultCluster -t MadeByAdmin -p 4")
        if self.version == "5.3.3":
            self("updateTopic -c DefaultCluster -t FifoByAdmin -a +message.type=FIFO", "updateTopic-attributes")

    def groups(self) -> None:
        self("updateSubGroup -c DefaultCluster -g GroupByAdmin -q 2 -r 5")
        self("getConsumerConfig -g GroupByAdmin")

    def clients(self) -> None:
        """With a producer and a consumer online."""
        with (
            self.agent.producer(self.server.namesrv, group="PG_Admin", instance="PG_Admin") as producer,
            self.agent.push(self.server.namesrv, "AdminTopic", "CG_Admin", instance="adm1") as consumer,
        ):
            messages = [Message(f"admin {n}".encode(), tags="TagA", keys=(f"adm{n}",)) for n in range(8)]
            producer.send("AdminTopic", messages)
            consumer.wait_for(8)
            self.wait_for_progress(0)
            self.look_at_the_topic()
            self.look_at_clients()
            self.move_offsets(consumer)

    def wait_for_progress(self, lag: int) -> None:
        """Until the group's offsets, which consumers commit every 5 s, are `lag` behind."""

        def arrived() -> bool:
            printed = self("consumerProgress -g CG_Admin")
            return "AdminTopic " in printed and f"Diff Total: {lag}\n" in printed

        wait_for_clients(arrived, f"the group is {lag} behind")

    def look_at_the_topic(self) -> None:
        for line in (
            "topicRoute -t AdminTopic",
            "topicStatus -t AdminTopic",
            "topicList",
            "topicClusterList -t AdminTopic",
            "allocateMQ -t AdminTopic -i 10.0.0.1,10.0.0.2",
            "statsAll -t AdminTopic",
            "clusterList",
            "brokerStatus -b BROKER",
            "brokerConsumeStats -b BROKER",
            "printMsg -t AdminTopic",
            "printMsgByQueue -t AdminTopic -a broker-a -i 0 -p true",
            "consumeMessage -t AdminTopic -c 3",
            "queryMsgByOffset -t AdminTopic -b broker-a -i 0 -o 0",
            "queryMsgByKey -t AdminTopic -k adm1",
            "queryCq -t AdminTopic -q 0 -i 0 -c 4 -g CG_Admin -b BROKER",
        ):
            self(line)
        self("topicRoute -t NoSuchTopic", "topicRoute-unknown")
        self("topicList -c", "topicList-cluster")
        self("clusterList -m", "clusterList-more")

    def look_at_clients(self) -> None:
        for line in (
            "consumerConnection -g CG_Admin",
            "producerConnection -g PG_Admin -t AdminTopic",
            "producer -b BROKER",
            "consumerStatus -g CG_Admin",
        ):
            self(line)
        [client] = [row[0] for row in mqadmin.rows(self.printed["consumerConnection"]) if row[0].endswith("@adm1")]
        self(f"consumerStatus -g CG_Admin -i {client} -s", "consumerStatus-client")
        self("consumerProgress", "consumerProgress-all")
        self("consumerProgress -g CG_NoSuch", "consumerProgress-unknown")
        found = self.printed["queryMsgByOffset"]
        message = found.split("OffsetID:")[1].split()[0]
        unique_key = found.split("UNIQ_KEY=")[1].split(",")[0]
        self(f"queryMsgById -i {message}" + (" -t AdminTopic" if self.version == "5.3.3" else ""))
        self(f"queryMsgByUniqueKey -t AdminTopic -i {unique_key}")
        line = f"queryMsgById -i {message} -g CG_Admin -d {client}"
        self(line + (" -t AdminTopic" if self.version == "5.3.3" else ""), "queryMsgById-direct")

    def move_offsets(self, consumer: PushConsumer) -> None:
        self("cloneGroupOffset -s CG_Admin -d GroupByAdmin -t AdminTopic", "cloned")
        self("cloneGroupOffset -s CG_Admin -d CG_Cloned -t AdminTopic")
        before = len(consumer.received)
        self("resetOffsetByTime -g CG_Admin -t AdminTopic -s 0")
        # A client of 4.9 lets go of its queues for 10 s first, and gets them back at its next rebalance.
        if self.version == "5.3.3" or NIGHTLY:
            self.received = consumer.wait_for(before + 8, timeout_s=60)[before:]
        self("skipAccumulatedMessage -g CG_Admin -t AdminTopic")

    def broker(self) -> None:
        self("getBrokerConfig -b BROKER")
        self("updateBrokerConfig -b BROKER -k longPollingEnable -v false")
        self("getBrokerConfig -b BROKER", "changed")
        self("updateBrokerConfig -b BROKER -k flushDiskType -v ASYNC_FLUSH", "not hot")
        self("updateBrokerConfig -b BROKER -k sendMessageThreadPoolNums -v 71", "no effect")
        self("updateBrokerConfig -b BROKER -k noSuchOption -v 71", "unknown")
        self("updateBrokerConfig -b BROKER -k longPollingEnable -v maybe", "no value")
        self("updateBrokerConfig -b BROKER -k longPollingEnable -v true", "back")
        self.permit(4, "drained")
        self.permit(6, "open again")
        self("getNamesrvConfig")
        self("updateNamesrvConfig -k clusterTest -v false")
        self("updateKvConfig -s GoldenNs -k kk -v vv")
        self("deleteKvConfig -s GoldenNs -k kk")
        self("wipeWritePerm -b broker-a")
        self("topicRoute -t AdminTopic", "wiped")
        self("addWritePerm -b broker-a")
        self("topicRoute -t AdminTopic", "added")
        self("sendMsgStatus -b broker-a -s 100 -c 2")
        self("checkMsgSendRT -t AdminTopic -a 2 -s 64")
        self("sendMessage -t AdminTopic -p 'sent by mqadmin' -k admk -c TagM")
        self("resetOffsetByTime -g CG_Admin -t AdminTopic -s now", "offline")
        for what in ("Configs", "Metadata", "Metrics"):
            self(f"export{what} -c DefaultCluster -f export")

    def permit(self, permission: int, label: str) -> None:
        """Change what the broker may do, until the route shows it."""
        self(f"updateBrokerConfig -b BROKER -k brokerPermission -v {permission}", "permission")
        wanted = f'"perm":{permission},'
        wait_for_clients(lambda: wanted in self("topicRoute -t AdminTopic", label), f"the route shows {wanted}")

    def deletions(self) -> None:
        for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
            self(f"{command} -b BROKER")
        self("deleteSubGroup -c DefaultCluster -g GroupByAdmin")
        self("deleteTopic -c DefaultCluster -t MadeByAdmin")
        self("topicRoute -t MadeByAdmin", "deleted")


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[str, Run]]:
    """Run the mqadmin of each version, side by side, since much of the time is waiting."""
    found: dict[str, Run] = {}
    with ExitStack() as stack:
        for version in JAVA_VERSIONS:
            scratch = shared_directory(request, "mqadmin")
            conf = scratch / "broker.conf"
            conf.write_text(CONF)
            server = stack.enter_context(Server(scratch / "data", "-c", str(conf), log_file_mib=None))
            agent = start(f"java-{version}", request)
            stack.callback(agent.close)
            found[version] = Run(agent, server)
        with ThreadPoolExecutor() as pool:
            list(pool.map(Run.everything, found.values()))
        yield found


@pytest.fixture(scope="module", params=JAVA_VERSIONS)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


# --- what each command prints

EVERY = (
    "addWritePerm", "allocateMQ", "checkMsgSendRT", "cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog",
    "clusterList", "clusterList-more", "consumeMessage",
    "consumerConnection", "consumerProgress", "consumerProgress-unknown", "consumerStatus", "consumerStatus-client",
    "deleteKvConfig", "deleteSubGroup", "deleteTopic", "exportConfigs", "exportMetadata", "exportMetrics",
    "getConsumerConfig", "printMsg", "printMsgByQueue", "producer", "producerConnection", "queryCq",
    "queryMsgById", "queryMsgById-direct", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey",
    "resetOffsetByTime", "sendMessage", "sendMsgStatus", "skipAccumulatedMessage", "statsAll",
    "topicClusterList", "topicRoute", "topicRoute-unknown", "topicStatus", "updateKvConfig", "updateNamesrvConfig",
    "updateOrderConf", "updateSubGroup", "updateTopic", "updateTopic-broker", "updateTopic-order", "updateTopicPerm",
    "wipeWritePerm",
)  # fmt: skip

# Lines of the recordings that need not be printed here.
MAY_BE_MISSING = (
    r"%RETRY%CG_Admin ",  # a client commits an offset there after its first long poll of 15 s
    r"AdminTopic AdminTopic ",  # 5.3.3 takes a consumer that was never one for a group named like the topic
    r"MessageTrack \[consumerGroup=AdminTopic, ",
    r"See <url> for further details., org",  # the second line of that
    r"The older <n> message",  # depends on how many messages each queue holds
)


@pytest.mark.parametrize("label", EVERY)
def test_a_command_prints_what_was_recorded(run: Run, label: str) -> None:
    ours = mqadmin.form(run.printed[label])
    theirs = mqadmin.form(mqadmin.recorded(run.version, label))
    wanted = [line for line in theirs if line in ours or not re.match("|".join(MAY_BE_MISSING), line)]
    assert ours == wanted


# Tables of the whole broker: rows of topics and groups that the other had not are left out.
@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("topicList", {"AdminTopic", "OrderedByAdmin", "TBW102", "%RETRY%CG_Admin", "SCHEDULE_TOPIC_XXXX"}),
        ("topicList-cluster", {"DefaultCluster AdminTopic CG_Admin", "DefaultCluster OrderedByAdmin"}),
        ("brokerConsumeStats", {"AdminTopic CG_Admin broker-a <n> <n> <n> <n> <time>", "Diff Total: <n>"}),
        ("consumerProgress-all", {"CG_Admin <n> <version> PUSH CLUSTERING <n> <n>"}),
    ],
)
def test_a_list_has_the_recorded_rows(run: Run, label: str, wanted: set[str]) -> None:
    ours = set(mqadmin.form(run.printed[label]))
    theirs = set(mqadmin.form(mqadmin.recorded(run.version, label)))
    heads = {line for line in theirs if line.startswith("#")}
    assert wanted | heads <= ours & theirs
    rows_of_ours_alone = ("FifoByAdmin", "TOOLS_CONSUMER", "rmq_sys_", "RMQ_SYS_TRANS_")
    assert [line for line in ours - theirs if not any(name in line for name in rows_of_ours_alone)] == []


@pytest.mark.parametrize("label", ["brokerStatus", "getBrokerConfig", "getNamesrvConfig"])
def test_figures_and_options_have_the_recorded_names(run: Run, label: str) -> None:
    def names(text: str) -> set[str]:
        return {found[1] for found in re.finditer(r"(?m)^(\w+) *[:=] ", text)}

    ours, theirs = names(run.printed[label]), names(mqadmin.recorded("5.3.3", label))
    assert len(ours) >= 10
    # The tools of 4.9 read the first; the second is there when something waits to be committed.
    assert ours <= theirs | NOT_APACHES | {"getTransferedTps", "remainHowManyDataToCommit"}


# --- what the figures are


def table(run: Run, label: str) -> list[list[str]]:
    return mqadmin.rows(run.printed[label])


def test_a_topics_status_counts_its_messages(run: Run) -> None:
    queues = [row for row in table(run, "topicStatus") if row[0] == "broker-a"]
    assert [(row[1], row[2], row[3]) for row in queues] == [(str(n), "0", "2") for n in range(4)]


def test_a_groups_progress_is_what_it_committed(run: Run) -> None:
    queues = [row for row in table(run, "consumerProgress") if row[0] == "AdminTopic"]
    assert [row[1:6] for row in queues] == [["broker-a", str(n), "2", "2", "0"] for n in range(4)]
    [everything] = [row for row in table(run, "brokerConsumeStats") if row[0] == "Diff"]
    assert everything[-1] == "0"
    [group] = [row for row in table(run, "consumerProgress-all") if row[0] == "CG_Admin"]
    assert (group[1], group[-1]) == ("1", "0")


def test_the_minutes_statistics_have_counted_the_messages(run: Run) -> None:
    [row] = [row for row in table(run, "statsAll") if row[:2] == ["AdminTopic", "CG_Admin"]]
    assert row[2] == "0"  # accumulation
    assert float(row[3]) == pytest.approx(8 / 60, abs=0.01)  # messages a second, coming in
    assert row[5] == "8"


def test_a_reset_group_gets_everything_again(run: Run) -> None:
    assert {tuple(row[1:]) for row in table(run, "resetOffsetByTime") if row[0] == "broker-a"} == {
        (str(queue), "0") for queue in range(4)
    }
    if run.version == "5.3.3" or NIGHTLY:
        places = {(message["queue_id"], message["queue_offset"]) for message in run.received}
        assert places == {(queue, offset) for queue in range(4) for offset in (0, 1)}


def test_a_skipping_group_is_at_the_end(run: Run) -> None:
    for label in ("skipAccumulatedMessage", "offline"):
        offsets = [int(row[2]) for row in table(run, label) if row[0] == "broker-a"]
        assert len(offsets) == 4
        assert sum(offsets) >= 8, label


def test_offsets_are_cloned_to_a_group_there_is(run: Run) -> None:
    """The broker answers as 5.3.3 does, to tools of 4.9 as well."""
    assert run.printed["cloned"].startswith("clone group offset success. srcGroup[CG_Admin], destGroup=[GroupByAdmin]")
    assert mqadmin.form("CODE: 26  DESC: Group CG_Cloned not exist!")[0] in " ".join(
        mqadmin.form(run.printed["cloneGroupOffset"])
    )


def test_the_order_configuration_is_what_was_set(run: Run) -> None:
    assert run.printed["updateOrderConf"].endswith("orderConf=[broker-a:2] ")


def test_permissions_are_wiped_and_given_back_in_the_route(run: Run) -> None:
    assert '"perm":4' in run.printed["wiped"]
    assert '"perm":6' in run.printed["added"]


def test_a_broker_is_drained_by_its_permission(run: Run) -> None:
    assert '"perm":4' in run.printed["drained"]
    assert '"perm":6' in run.printed["open again"]


def test_a_deleted_topic_has_no_route(run: Run) -> None:
    assert "CODE: 17  DESC: No topic route info in name server for the topic: MadeByAdmin" in run.printed["deleted"]


def test_an_option_that_is_read_at_each_use_is_changed(run: Run) -> None:
    assert run.printed["updateBrokerConfig"] == f"update broker config success, {run.server.broker}\n"
    assert "longPollingEnable                                 =  true" in run.printed["getBrokerConfig"]
    assert "longPollingEnable                                 =  false" in run.printed["changed"]


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("not hot", "CODE: 29  DESC: flushDiskType cannot be changed while the broker runs."),
        ("no effect", "CODE: 16  DESC: sendMessageThreadPoolNums has no effect in this broker"),
        ("unknown", "CODE: 1  DESC: There is no option noSuchOption."),
        ("no value", "CODE: 29  DESC: longPollingEnable must be one of true, false."),
    ],
)
def test_any_other_option_is_refused_with_the_reason(run: Run, label: str, reason: str) -> None:
    assert reason in run.printed[label]


def test_what_was_exported_is_what_there_is(run: Run) -> None:
    directory = Path(run.agent.log_path).parent / "export"
    metadata = json.loads((directory / "metadata.json").read_text())
    assert metadata["topicConfigTable"]["AdminTopic"]["readQueueNums"] == 4
    assert "CG_Admin" in metadata["subscriptionGroupTable"]
    configs = json.loads((directory / "configs.json").read_text())
    assert configs["clusterScale"]["brokerSize" if "brokerSize" in configs["clusterScale"] else "slaveBrokerSize"] >= 0
    assert configs["brokerConfigs"]["broker-a"]["brokerName"] == "broker-a"
    metrics = json.loads((directory / "metrics.json").read_text())
    assert "broker-a" in metrics["evaluateReport"]
