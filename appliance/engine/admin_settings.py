"""Settings of topics and consumer groups that administrators may change: one declaration for each.

By these tables the window checks, applies and previews; the forms, the API's bodies and the options of commands are
made of them. A setting that is a field or an attribute of RocketMQ's needs a line here and nothing else in the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .named_tuple import NamedTuple
from .protocol.names import MAX_QUEUE_NUMS, MESSAGE_TYPE, PERM_READ, PERM_WRITE, RESERVE_TIME

if TYPE_CHECKING:
    from .broker.group_config import SubscriptionGroupConfig
    from .broker.topic_config import TopicConfig

#: A hundred years.
MAX_RESERVE_HOURS = 876_000
MAX_RETRIES = 1_000_000

Value = bool | int | str


class Setting(NamedTuple):
    """One setting. name: in window, API and forms. default: value for a new topic or group; its type is the setting's.

    field: of TopicConfig or SubscriptionGroupConfig, which JSON has in camel case. bit: the setting is this bit of the
    field. attribute: the topic's attribute that holds it, instead of a field; absent: its value without the attribute.
    minimum, maximum: bounds of a number. choices: the values of a text; without them it is a line of at most `maximum`
    characters. later: it can be set only on what exists. says: for programs, where its name does not say enough.
    """

    name: str
    default: Value
    field: str = ""
    bit: int = 0
    attribute: str = ""
    absent: Value = ""
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()
    later: bool = False
    says: str = ""

    def accepts(self, value: object) -> bool:
        """True if the setting may have this value."""
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if isinstance(self.default, int):
            return isinstance(value, int) and not isinstance(value, bool) and self.minimum <= value <= self.maximum
        if self.choices:
            return value in self.choices
        return isinstance(value, str) and value.isprintable() and len(value) <= self.maximum

    def read(self, config: Any) -> Value:
        """Return its value in a TopicConfig or a SubscriptionGroupConfig."""
        if self.attribute:
            text = config.attributes.get(self.attribute)
            if not isinstance(self.default, int):
                return self.absent if text is None else str(text)
            # The file of another broker may hold anything.
            return int(text) if text and len(text) < 20 and text.isascii() and text.isdigit() else self.absent
        value: Value = getattr(config, self.field)
        return bool(int(value) & self.bit) if self.bit else value

    def write(self, config: Any, value: Value) -> Any:
        """Return the configuration with this value, which `accepts` has allowed."""
        import msgspec  # the commands' process reads declarations only

        if self.attribute:
            attributes = {key: text for key, text in config.attributes.items() if key != self.attribute}
            if value != self.absent:
                attributes[self.attribute] = str(value)
            return msgspec.structs.replace(config, attributes=attributes)
        if self.bit:
            known: int = getattr(config, self.field)
            value = known | self.bit if value else known & ~self.bit
        return msgspec.structs.replace(config, **{self.field: value})


TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "kind",
        "NORMAL",
        attribute=MESSAGE_TYPE,
        absent="UNSPECIFIED",
        choices=("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"),  # TopicService refuses MIXED
    ),
    Setting("read_queues", 8, "read_queue_nums", maximum=MAX_QUEUE_NUMS),
    Setting("write_queues", 8, "write_queue_nums", maximum=MAX_QUEUE_NUMS),
    Setting("readable", True, "perm", PERM_READ),
    Setting("writable", True, "perm", PERM_WRITE),
    Setting("order", False, "order"),
    Setting(
        "reserve_hours",
        0,
        attribute=RESERVE_TIME,
        absent=0,
        maximum=MAX_RESERVE_HOURS,
        later=True,
        says="Older messages are not shown; 0: as long as the broker keeps messages.",
    ),
)

NEW_TOPIC_SETTINGS = tuple(setting for setting in TOPIC_SETTINGS if not setting.later)

GROUP_SETTINGS: tuple[Setting, ...] = (
    Setting("consume_enable", True, "consume_enable"),
    Setting("consume_broadcast_enable", True, "consume_broadcast_enable"),
    Setting("consume_message_orderly", False, "consume_message_orderly"),
    Setting("retry_queue_nums", 1, "retry_queue_nums", maximum=MAX_QUEUE_NUMS),
    Setting("retry_max_times", 16, "retry_max_times", minimum=-1, maximum=MAX_RETRIES),
)


def topic_fields(config: TopicConfig) -> dict[str, str]:
    """Return a topic's settings as texts, for a list of differences; numeric attributes under the attribute's name."""
    named = [setting for setting in TOPIC_SETTINGS if not setting.attribute or setting.choices]
    hidden = {setting.attribute for setting in named}
    fields = {setting.name: _text(setting.read(config)) for setting in named}
    return fields | {key: text for key, text in config.attributes.items() if key not in hidden}


def group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    """Return a group's settings as texts, for a list of differences."""
    return {setting.name: _text(setting.read(config)) for setting in GROUP_SETTINGS}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
