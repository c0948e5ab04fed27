"""Sources of settings, which source wins, and how a wrong setting is refused."""

import json
import re
from pathlib import Path

import pytest

from appliance.command_line import OPTIONS, environment_names, help_text, load
from appliance.engine import upstream_options
from appliance.engine.config import SECTIONS, options_of
from appliance.engine.errors import StartError
from appliance.main import what_strangers_can_do
from appliance.sign_in_options import KEYS as SIGN_IN_KEYS


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def conf(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def refusal(*argv: str, **environ: str) -> str:
    with pytest.raises(StartError) as caught:
        load(argv, environ)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_defaults(tmp_path):
    config, options = load([], {"PATH": "/bin", "NAMESRV_ADDR": "elsewhere:9876"})
    assert config.data_dir == tmp_path / "data"
    assert config.store_dir == tmp_path / "data" / "store"
    assert (config.bind, config.broker_port, config.namesrv_port) == ("127.0.0.1", 10911, 9876)
    assert config.roles == {"broker", "namesrv"}
    assert config.store.flush_disk_type == "SYNC_FLUSH"
    assert config.broker.namesrv_addrs == ()
    assert (options.console, options.http_port, options.ready_file, options.notices) == (True, 8080, None, ())


def test_every_option_of_the_command_line_arrives(tmp_path):
    config, options = load(
        [
            *("--data-dir", "d", "--store-dir", "s", "--bind", "0.0.0.0", "--broker-port=1000", "--namesrv-port", "0"),
            *("--http-port", "0", "--roles", "broker, console", "--broker-name", "b", "--broker-id", "3"),
            *("--cluster-name", "C", "--namesrv-addr", "h:1;h:2", "--advertise", "10.1.1.1", "--flush", "async"),
            *("--ready-file", "r.json", "--access-control", "report", "--tls-mode", "enforcing", "--tls-cert", "c.pem"),
            *("--tls-key", "c.key", "--tls-client-auth", "required", "--tls-client-ca", "ca.pem"),
            *("--proxy-protocol-from", "10.0.0.5"),
        ],
        {},
    )
    assert (config.data_dir, config.store_dir) == (tmp_path / "d", tmp_path / "s")
    assert (config.bind, config.broker_port, config.namesrv_port) == ("0.0.0.0", 1000, 0)
    assert config.roles == {"broker"}
    assert (config.broker.broker_name, config.broker.broker_id, config.broker.cluster_name) == ("b", 3, "C")
    assert config.broker.namesrv_addrs == ("h:1", "h:2")
    assert config.advertise == "10.1.1.1"
    assert config.store.flush_disk_type == "ASYNC_FLUSH"
    assert (options.console, options.bind, options.http_port) == (True, "0.0.0.0", 0)
    assert options.ready_file == tmp_path / "r.json"
    doors = config.broker
    assert (doors.access_control, doors.tls_mode, doors.proxy_protocol_from) == ("report", "enforcing", "10.0.0.5")
    assert (doors.tls_cert_file, doors.tls_key_file) == ("c.pem", "c.key")
    assert (doors.tls_client_auth, doors.tls_client_ca_file) == ("required", "ca.pem")


def test_later_sources_win():
    file = conf("rocketbox.toml", "[broker]\nbrokerName = 'f'\nlistenPort = 1001\ndefaultTopicQueueNums = 2\n")
    environ = {"ROCKETBOX_BROKER_NAME": "e", "ROCKETBOX_BROKER_PORT": "1002"}
    argv = ["-c", file, "--broker-port", "1003"]
    config, _ = load(argv, environ)
    assert config.broker.default_topic_queue_nums == 2
    assert config.broker.broker_name == "e"
    assert config.broker_port == 1003
    assert load(argv[:2], {})[0].broker_port == 1001


def test_the_environment_reaches_every_option_and_every_key():
    environ = {
        "ROCKETBOX_DATA_DIR": "d",
        "ROCKETBOX_FLUSH": "async",
        "ROCKETBOX_STORE_FILE_RESERVED_TIME": "24",
        "ROCKETBOX_BROKER_autoCreateTopicEnable": "false",
        "ROCKETBOX_NAMESRV_CLUSTER_TEST": "true",
        "ROCKETBOX_CONFIG": conf("x.toml", "[namesrv]\nlistenPort = 777\n"),
    }
    config, _ = load([], environ)
    assert config.data_dir.name == "d"
    assert config.store.flush_disk_type == "ASYNC_FLUSH"
    assert config.store.file_reserved_time_hours == 24
    assert config.broker.auto_create_topic_enable is False
    assert config.namesrv.cluster_test is True
    assert config.namesrv_port == 777


def test_no_variable_means_two_things():
    expected = len(OPTIONS) + sum(len(options_of(section)) for section in SECTIONS) + len(SIGN_IN_KEYS)
    assert len(environment_names()) == expected


def test_apaches_files_set_what_they_mean(tmp_path):
    broker = conf(
        "broker.conf",
        "brokerClusterName=C\nbrokerName=broker-a\nbrokerIP1=10.0.0.9\nlistenPort=10921\nflushDiskType=ASYNC_FLUSH\n"
        f"storePathRootDir={tmp_path}/s\nstorePathCommitLog={tmp_path}/s/commitlog\nnamesrvAddr=h:1;h:2\n"
        "brokerRole=ASYNC_MASTER\ndeleteWhen=04\ntransientStorePoolEnable=true\nsendMessageThreadPoolNums=16\n",
    )
    namesrv = conf("namesrv.conf", "listenPort=9877\nserverWorkerThreads=8\norderMessageEnable=true\n")
    config, options = load(["-c", broker, "-c", namesrv], {})
    assert config.broker.cluster_name == "C"
    assert config.broker.namesrv_addrs == ("h:1", "h:2")
    assert config.advertise == "10.0.0.9"
    assert (config.broker_port, config.namesrv_port) == (10921, 9877)
    assert config.store_dir == tmp_path / "s"
    assert config.store.flush_disk_type == "ASYNC_FLUSH"
    assert config.namesrv.order_message_enable is True
    assert options.notices == (
        "These settings have no effect here: transientStorePoolEnable, sendMessageThreadPoolNums, serverWorkerThreads.",
    )


@pytest.mark.parametrize("table", ["broker", "namesrv"])
def test_every_option_that_apache_knows_is_known(table):
    names = {"broker": upstream_options.BROKER, "namesrv": upstream_options.NAMESRV}[table]
    names -= set(upstream_options.REFUSED) | {"storePathCommitLog"}
    _, options = load(["-c", conf(f"{table}.conf", "".join(f"{name}=1\n" for name in names))], {})
    assert sorted(re.findall(r"\w+", options.notices[0].partition(":")[2])) == sorted(names)


def test_what_apaches_servers_ignore_does_not_end_a_start():
    broker = conf(
        "broker.conf",
        "brokerName=b\ntransactionTimeout=6000\nenableProxy=true\nclientManagerThreadPoolNums=32\nfileReservedTime=\n"
        "autoCreateSubscriptionGroupEnable=false\ntls.server.mode=enforcing\n",
    )
    namesrv = conf("namesrv.conf", "brokerName=b\nlistenPort=9877\n")
    config, options = load(["-c", broker, "-c", namesrv], {})
    assert (config.broker.broker_name, config.namesrv_port, config.store.file_reserved_time_hours) == ("b", 9877, 72)
    unknown, empty, of_namesrv = options.notices
    assert unknown.startswith("broker.conf has unknown settings, which are ignored: transactionTimeout (similar: ")
    assert unknown.count("(similar: transactionTimeOut") == 1
    for name in ("enableProxy", "clientManagerThreadPoolNums", "autoCreateSubscriptionGroupEnable", "tls.server.mode"):
        assert name in unknown
    assert empty == "broker.conf has settings without a value, which are ignored: fileReservedTime."
    assert of_namesrv.startswith("namesrv.conf has unknown settings, which are ignored: brokerName")


def test_many_unknown_settings_are_told_in_one_line_that_ends():
    file = conf("broker.conf", "".join(f"zz{n}=1\n" for n in range(1000)))
    [told] = load(["-c", file], {})[1].notices
    assert told.endswith(" and 960 more.")


def test_a_value_that_would_break_a_promise_is_refused():
    assert "aclEnable=true is not possible: access control is switched on by accessControl here" in refusal(
        "-c", conf("broker.conf", "aclEnable=true\n")
    )
    assert "brokerRole=SLAVE does not go with brokerId=0" in refusal("-c", conf("broker.conf", "brokerRole=SLAVE\n"))
    assert "useTLS=true is not possible" in refusal("-c", conf("a.toml", "[broker]\nuseTLS = true\n"))
    load(["-c", conf("broker.conf", "aclEnable=false\nuseTLS=FALSE\nstoreType=default\n")], {})


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--brokerport", "1"], "There is no option --brokerport; similar ones are --broker-port"),
        (["stray"], "There is no option stray."),
        (["--broker-port"], "--broker-port needs a value: N."),
        (["--broker-port", "x"], "--broker-port must be a whole number, not 'x'."),
        (["--broker-port", "70000"], "--broker-port must be between 0 and 65535, not 70000."),
        (["--broker-port", "2"], "--broker-port must leave room for the ports N-2 and N+1, and 2 does not."),
        (["--roles", "broker,web"], "--roles must be a list of broker, namesrv, console, not 'broker,web'."),
        (["--roles", ""], "--roles must be a list of broker, namesrv, console, not ''."),
        (["--roles", "console"], "The console does not run alone: add broker or namesrv to --roles."),
        (["--flush", "maybe"], "--flush must be sync or async, not 'maybe'."),
        (["--data-dir", " "], "--data-dir must be text, not ' '."),
        (["--namesrv-addr", "host"], "--namesrv-addr must be host:port addresses separated by ';', not 'host'."),
        (["-c", "absent.conf"], "The configuration file absent.conf cannot be read: No such file or directory."),
    ],
)
def test_a_wrong_argument_is_one_sentence(argv, sentence):
    assert refusal(*argv).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("rocketbox.conf", "[broker]\nzzzz='1'", "rocketbox.conf has an unknown setting zzzz."),
        ("broker.conf", "listenPort=x", "broker.conf: listenPort must be a whole number, not 'x'."),
        ("broker.conf", "storePathCommitLog=/elsewhere", "broker.conf: storePathCommitLog is /elsewhere, but the "),
        ("a.toml", "[namesrv]\nbrokerName='b'", "a.toml has an unknown setting brokerName"),
        (
            "a.toml",
            "dataDirr='x'",
            "a.toml has an unknown setting dataDirr above its tables; similar ones are data",
        ),
        (
            "a.toml",
            "[broker]\nmaxMessageSize=1",
            "a.toml: maxMessageSize belongs to the table [store], not to [broker]",
        ),
        ("a.toml", "[reports]\nwhen='02:00'", "a.toml has an unknown setting when"),
        ("a.toml", "[store]\nfileReservedTime='x'", "a.toml: fileReservedTime must be a whole number, not 'x'."),
    ],
)
def test_a_wrong_line_of_a_file_is_one_sentence(name, text, sentence):
    assert refusal("-c", conf(name, text)).startswith(sentence)


#: Options that take any text.
_TEXTS = {f"{section}.{name}" for section in SECTIONS for name, option in options_of(section).items()
          if isinstance(option.default, (str, Path))}  # fmt: skip


@pytest.mark.parametrize("setting", sorted({*_TEXTS, "dataDir", "storeDir", "readyFile", "console.environment"}))
def test_no_text_or_path_holds_control_characters(setting):
    section, dot, name = setting.rpartition(".")
    for sign in ("\\u0000", "\\u000A", "\\u0001", "\\u007F"):
        text = f'[{section}]\n{name}="a{sign}b"\n' if dot else f'{name}="a{sign}b"\n'
        assert refusal("-c", conf("a.toml", text)).startswith(f"a.toml: {name} must ")
    assert "must be text without control characters" in refusal("-c", "a\0b")


@pytest.mark.parametrize("name", ["my broker", "名字", "x" * 256, "a/b", "a'b", " b"])
@pytest.mark.parametrize("option", ["--broker-name", "--cluster-name"])
def test_a_name_that_no_name_server_takes_is_refused(option, name):
    """The broker would run, and no client would ever find it."""
    assert refusal(option, name).startswith(f"{option} must be 1 to 255 characters of ASCII without blanks")
    assert load([option, name.translate(str.maketrans("名字 /'", "ab---"))[:255].strip("-")], {})


def test_what_messages_say_of_their_region_is_text():
    assert "at most 255 characters" in refusal(ROCKETBOX_BROKER_REGIONID="x" * 256)
    assert "must be text in UTF-8" in refusal(ROCKETBOX_BROKER_REGIONID="\udcff")
    assert "must be the name of a topic" in refusal(ROCKETBOX_BROKER_MSGTRACETOPICNAME="a/../b")


def test_a_whole_file_put_in_by_mistake_does_not_fill_the_screen():
    assert len(refusal("--broker-port", "x" * 100_000)) < 1000


def test_an_unknown_setting_names_the_nearest_known():
    file = conf("a.toml", "[broker]\nautoCreateTopicEnabled=true")
    assert "similar ones are autoCreateTopicEnable" in refusal("-c", file)
    assert "similar ones are ROCKETBOX_BROKERPORT" in refusal(ROCKETBOX_BROKER_PROT="1")


def test_the_variable_that_forces_the_pure_twin_is_no_setting():
    assert load([], {"ROCKETBOX_PURE": "1"}) == load([], {})


def test_an_overridden_value_does_not_matter():
    config, _ = load(["-c", conf("broker.conf", "listenPort=x"), "--broker-port", "1234"], {})
    assert config.broker_port == 1234


def test_help_names_every_option():
    assert all(option in help_text() for option in OPTIONS)
    # Words of an option stand apart from what it does, however long they are.
    assert all(f"  {text}" in help_text() for _, text, _ in OPTIONS.values())


def test_the_address_chosen_in_the_console_counts_when_nothing_else_names_one(tmp_path):
    from appliance.runtime import Place

    place = Place(tmp_path)
    place.directory.mkdir()
    place.save_advertise("mq.example.org")
    config, options = load(["--data-dir", str(tmp_path)], {})
    assert (config.advertise, options.advertise_source) == ("mq.example.org", None)
    config, options = load(["--data-dir", str(tmp_path), "--advertise", "10.0.0.1"], {})
    assert (config.advertise, options.advertise_source) == ("10.0.0.1", "--advertise")


def test_what_a_page_wrote_down_never_ends_a_start(tmp_path):
    from appliance.runtime import Place

    place = Place(tmp_path)
    place.directory.mkdir()
    for wrong in ("a b", "0.0.0.0", "h:1", "x" * 300):
        place.save_advertise(wrong)
        config, options = load(["--data-dir", str(tmp_path)], {})
        assert config.advertise is None
        assert options.notices[0].startswith("The address for clients that was set in the console is ignored: it must ")


#: A host as written -> the host as the setting holds it.
HOSTS = {
    "localhost": "localhost",
    " mq.example.org ": "mq.example.org",
    "broker_1.": "broker_1.",
    "10.0.0.5": "10.0.0.5",
    "::1": "::1",
    "[::1]": "::1",
    "0:0::1": "::1",
}
WITH_PORT = ("10.0.0.5:9876", "[::1]:9876", "mq.example.org:9876")
NO_HOSTS = (
    *(*WITH_PORT, "a b", "http://mq", "10.0.0.256", "127.1", "a..b", "-a"),
    *("m\u00fcller.example", "x" * 300, "x" * 64 + ".org", "[", "[]", "\x00", "a,b", "a;b"),
)


@pytest.mark.parametrize(("text", "host"), HOSTS.items())
def test_an_address_is_a_host_however_it_is_written(text, host):
    assert load(["--advertise", text], {})[0].advertise == host
    assert load(["-c", conf("broker.conf", f"brokerIP1={text}\nbrokerIP2={text}\n")], {})[0].broker.ha_advertise == host


@pytest.mark.parametrize("text", ["", " ", *NO_HOSTS])
def test_what_is_no_host_is_refused_where_it_is_read(text):
    assert "--bind must be " in refusal("--bind", text)
    if text not in WITH_PORT:
        assert "--advertise must be " in refusal("--advertise", text)
        file = conf("a.toml", f"advertise = {json.dumps(text)}")
        assert "a.toml: advertise must be " in refusal("-c", file)


@pytest.mark.parametrize(
    ("text", "told"),
    [("mq.example.org:20911", ("mq.example.org", 20911)), (" [0::1]:1 ", ("::1", 1)), ("10.0.0.5", ("10.0.0.5", 0))],
)
def test_clients_may_be_told_another_port(text, told):
    config, _ = load(["--advertise", text, "--broker-port", "4711"], {})
    assert (config.advertise, config.advertise_port, config.broker_port) == (*told, 4711)


@pytest.mark.parametrize("text", ["h:0", "h:65536", "h:123456", "h:", "0.0.0.0:1", "a b:1", "::1:9876"])
def test_a_port_that_clients_cannot_be_told_is_refused(text):
    if text == "::1:9876":  # an IPv6 address: a port stands behind brackets
        assert load(["--advertise", text], {})[0].advertise_port == 0
    else:
        assert "--advertise must " in refusal("--advertise", text)


@pytest.mark.parametrize("text", [*NO_HOSTS[2:10], "h", "h:", "h:0", "h:x", "::1:9876", "[::1]", "h:99999"])
def test_what_is_no_address_is_refused_where_it_is_read(text):
    text = text if ":" in text or text == "h" else f"{text}:9876"
    if text == "mq.example.org:9876":
        return
    assert "--namesrv-addr must be " in refusal("--namesrv-addr", text)
    for key, value in {"haMasterAddress": text, "haStore": f"etcd://{text}"}.items():
        assert f"a.toml: {key} must be " in refusal("-c", conf("a.toml", f"[store]\n{key} = {json.dumps(value)}"))


def test_an_address_is_kept_in_one_form():
    text = '[broker]\nbrokerName="b"\nnamesrvAddr="[0::1]:1; h:2 ;"\n[store]\nhaStore=" etcd://a:1;[0:0::1]:2 "\n'
    config, _ = load(["-c", conf("a.toml", text)], {})
    assert config.broker.namesrv_addrs == ("[::1]:1", "h:2")
    assert config.store.ha_store == "etcd://a:1,[::1]:2"
    assert load(["-c", conf("b.toml", '[store]\nhaMasterAddress="h:1;"')], {})[0].store.ha_master_address == "h:1"


def test_a_store_of_more_endpoints_than_any_has_is_a_slip():
    many = ",".join(f"h{n}:1" for n in range(17))
    assert "haStore names 17 endpoints; 16 is the most." in refusal(
        "-c", conf("a.toml", f'[store]\nhaStore="etcd://{many}"')
    )


def test_a_name_to_listen_on_is_an_address_from_then_on(monkeypatch):
    config, options = load(["--bind", "localhost"], {})
    assert (config.bind, options.bind, config.advertise) == ("127.0.0.1", "127.0.0.1", "localhost")
    assert load(["--bind", "localhost", "--advertise", "10.0.0.1"], {})[0].advertise == "10.0.0.1"
    monkeypatch.setattr("appliance.command_line.resolved", lambda host: ())
    assert refusal("--bind", "mq.example.org") == (
        "--bind is mq.example.org, and that name has no address on this machine."
    )


def test_clients_are_not_told_to_connect_to_every_address():
    for text in ("0.0.0.0", "::", "[::]"):
        assert "--advertise must be what clients can connect to" in refusal("--advertise", text)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://mq.example.org/rocketbox", True),
        ("http://mq.example.org:8443", True),
        ("mq.example.org", False),
        ("ftp://mq.example.org", False),
        ("https://mq.example.org/a b", False),
        ("https://mq.example.org/?x=1", False),
        ("https:///rocketbox", False),
    ],
)
def test_a_public_url_is_an_http_address_with_a_plain_path(url, good):
    if good:
        assert load(["--public-url", url], {})[1].public_url == url
    else:
        with pytest.raises(StartError, match="must be like https://"):
            load(["--public-url", url], {})


# --- administration over the wire


def test_administration_over_the_wire_is_taken_from_loopback_unless_told_otherwise():
    assert load([], {})[0].wire_admin == "loopback"
    file = conf("rocketbox.toml", "wireAdmin = 'off'\n")
    assert load(["-c", file], {})[0].wire_admin == "off"
    assert load(["-c", file], {"ROCKETBOX_WIRE_ADMIN": "all"})[0].wire_admin == "all"
    assert load(["-c", file, "--wire-admin", "loopback"], {"ROCKETBOX_WIRE_ADMIN": "all"})[0].wire_admin == "loopback"


def test_another_word_for_it_is_refused():
    assert refusal("--wire-admin", "everyone") == "--wire-admin must be loopback, all or off, not 'everyone'."
    assert "ROCKETBOX_WIRE_ADMIN must be" in refusal(ROCKETBOX_WIRE_ADMIN="")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("loopback", "Administration (topics, groups, settings, offset resets) is accepted over 127.0.0.1 only."),
        ("all", "lets them administer, too: delete topics and groups"),
        ("off", "Administration over these ports is off."),
    ],
)
def test_the_warning_of_an_open_address_says_what_a_stranger_can_do(policy, words):
    text = what_strangers_can_do(load(["--bind", "0.0.0.0", "--wire-admin", policy], {})[0])
    assert words in text
    for what in (
        *("0.0.0.0", "10911, 10909, 9876", "no password", "send to every topic", "read every message"),
        *("move every group's offsets", "register or unregister brokers under any name"),
    ):
        assert what in text
    assert "register" not in what_strangers_can_do(load(["--bind", "0.0.0.0", "--roles", "broker"], {})[0])
