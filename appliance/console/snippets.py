"""A first program in each language, with this server's own address in it. The tests run what is here."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = "HelloRocketBox"


@dataclass(frozen=True, slots=True)
class Snippet:
    """key: part of addresses and ids. install: what to type first. code: the whole program."""

    key: str
    name: str
    install: str
    file_name: str
    code: str


_JAVA = """\
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello-producer");
        producer.setNamesrvAddr("%(namesrv)s");
        producer.start();
        System.out.println(producer.send(new Message("%(topic)s", "Hello from Java".getBytes())));
        producer.shutdown();
    }
}
"""

_GO = """\
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

_PYTHON = """\
from rocketmq.client import Message, Producer

producer = Producer("hello-producer")
producer.set_namesrv_addr("%(namesrv)s")
producer.start()
message = Message("%(topic)s")
message.set_body("Hello from Python")
print(producer.send_sync(message))
producer.shutdown()
"""

_MAVEN = """\
<dependency>
  <groupId>org.apache.rocketmq</groupId>
  <artifactId>rocketmq-client</artifactId>
  <version>5.3.3</version>
</dependency>"""


def snippets(namesrv: str) -> list[Snippet]:
    """Programs that send one message to TOPIC through the name server at `namesrv` (host:port)."""
    values = {"namesrv": namesrv, "topic": TOPIC}
    return [
        Snippet("java", "Java", _MAVEN, "Hello.java", _JAVA % values),
        Snippet("go", "Go", "go get github.com/apache/rocketmq-client-go/v2@v2.1.2", "hello.go", _GO % values),
        Snippet("python", "Python, C++", "pip install rocketmq", "hello.py", _PYTHON % values),
    ]
