"""Complete programs in each language, a producer and a consumer, with this server's address in them, and the commands
that run them. The tests run these commands one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOPIC = "HelloRocketBox"
GROUP = "hello-consumer"
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
LANGUAGES = ("java", "go", "python")


@dataclass(frozen=True, slots=True)
class Project:
    """The files of one directory, and the commands to type there. key: part of addresses and ids. needs: the programs
    that must be installed. prepare: run once first; "" for nothing. produce: sends one message and ends. consume:
    prints messages as they come."""

    key: str
    name: str
    needs: str
    files: tuple[tuple[str, str], ...]
    prepare: str
    produce: str
    consume: str

    def file(self, name: str) -> str:
        """Return the text of one of its files."""
        return dict(self.files)[name]


_POM = """\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>hello</groupId>
  <artifactId>hello</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>11</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>rocketmq-client</artifactId>
      <version>5.3.3</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-compiler-plugin</artifactId>
        <version>3.11.0</version>
      </plugin>
      <plugin>
        <groupId>org.codehaus.mojo</groupId>
        <artifactId>exec-maven-plugin</artifactId>
        <version>3.1.0</version>
      </plugin>
    </plugins>
  </build>
</project>
"""

_JAVA_PRODUCER = """\
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Producer {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello-producer");
        producer.setNamesrvAddr("%(namesrv)s");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            System.out.println(producer.send(new Message("%(topic)s", "Hello from Java".getBytes("UTF-8"))));
        } finally {
            producer.shutdown();
        }
    }
}
"""

_JAVA_CONSUMER = """\
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class Consumer {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("%(group)s");
        consumer.setNamesrvAddr("%(namesrv)s");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("%(topic)s", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("Waiting for messages; Ctrl-C ends it.");
    }
}
"""

_GO_MOD = """\
module hello

go 1.19

require github.com/apache/rocketmq-client-go/v2 v2.1.2
"""

_GO_PRODUCER = """\
package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	sender, err := rocketmq.NewProducer(producer.WithNameServer([]string{"%(namesrv)s"}))
	if err != nil {
		panic(err)
	}
	if err = sender.Start(); err != nil {
		panic(err)
	}
	fmt.Println(sender.SendSync(context.Background(), primitive.NewMessage("%(topic)s", []byte("Hello from Go"))))
	_ = sender.Shutdown()
}
"""

_GO_CONSUMER = """\
package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func main() {
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName("%(group)s"),
		consumer.WithNameServer([]string{"%(namesrv)s"}),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		panic(err)
	}
	print := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			fmt.Println(string(message.Body))
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = receiver.Subscribe("%(topic)s", consumer.MessageSelector{}, print); err != nil {
		panic(err)
	}
	if err = receiver.Start(); err != nil {
		panic(err)
	}
	fmt.Println("Waiting for messages; Ctrl-C ends it.")
	select {}
}
"""

_REQUIREMENTS = """\
rocketmq==0.4.4
"""

_PYTHON_PRODUCER = """\
from rocketmq.client import Message, Producer

producer = Producer("hello-producer")
producer.set_namesrv_addr("%(namesrv)s")
producer.start()
message = Message("%(topic)s")
message.set_body("Hello from Python")
print(producer.send_sync(message))
producer.shutdown()
"""

_PYTHON_CONSUMER = """\
import time

from rocketmq.client import PushConsumer


def listen(message):
    print(message.body.decode(), flush=True)


consumer = PushConsumer("%(group)s")
consumer.set_namesrv_addr("%(namesrv)s")
consumer.subscribe("%(topic)s", listen)
consumer.start()
print("Waiting for messages; Ctrl-C ends it.", flush=True)
while True:
    time.sleep(1)
"""


def projects(namesrv: str, topic: str = TOPIC) -> list[Project]:
    """Return, for each language, a producer that sends one message to the topic, and a consumer of it. namesrv: the
    name server's host:port.

    Raises ValueError for an invalid name of a topic: it would become text of a program.
    """
    if not _TOPIC_NAME.fullmatch(topic):
        raise ValueError(topic)
    values = {"namesrv": namesrv, "topic": topic, "group": GROUP}
    return [
        Project(
            "java",
            "Java",
            "JDK 11, Maven",
            (
                ("pom.xml", _POM),
                ("src/main/java/Producer.java", _JAVA_PRODUCER % values),
                ("src/main/java/Consumer.java", _JAVA_CONSUMER % values),
            ),
            "mvn -q compile",
            "mvn -q exec:java -Dexec.mainClass=Producer",
            "mvn -q exec:java -Dexec.mainClass=Consumer",
        ),
        Project(
            "go",
            "Go",
            "Go 1.19",
            (
                ("go.mod", _GO_MOD),
                ("producer/main.go", _GO_PRODUCER % values),
                ("consumer/main.go", _GO_CONSUMER % values),
            ),
            "go mod tidy",
            "go run ./producer",
            "go run ./consumer",
        ),
        Project(
            "python",
            "Python, C++",
            "Python 3, Linux",
            (
                ("requirements.txt", _REQUIREMENTS),
                ("producer.py", _PYTHON_PRODUCER % values),
                ("consumer.py", _PYTHON_CONSUMER % values),
            ),
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
            ".venv/bin/python producer.py",
            ".venv/bin/python consumer.py",
        ),
    ]


def shell_of(project: Project) -> str:
    """Return one shell script that creates the directory and its files, and runs `prepare`."""
    directory = f"hello-{project.key}"
    lines = [f"mkdir -p {directory} && cd {directory}"]
    for name, text in project.files:
        if "/" in name:
            lines.append(f"mkdir -p {name.rpartition('/')[0]}")
        lines.append(f"cat > {name} <<'END'\n{text}END")
    if project.prepare:
        lines.append(project.prepare)
    return "\n".join(lines) + "\n"
