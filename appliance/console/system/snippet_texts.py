"""The texts of the programs in `snippets.py`, by language. `%(...)s` are filled in there; what is about users and TLS
is empty where there is none."""

from __future__ import annotations

POM = """\
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
      <version>%(version)s</version>
    </dependency>%(acl)s
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

#: Client 4.x has its signatures in a library of their own.
POM_ACL = """
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>rocketmq-acl</artifactId>
      <version>%(version)s</version>
    </dependency>"""

JAVA_PRODUCER = """\
%(imports)simport org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Producer {
    public static void main(String[] arguments) throws Exception {
%(trust)s        DefaultMQProducer producer = new DefaultMQProducer("hello-producer"%(hook)s);
        producer.setNamesrvAddr("%(namesrv)s");
        producer.setSendMsgTimeout(10_000);
%(encrypt)s        producer.start();
        try {
            System.out.println(producer.send(new Message("%(topic)s", "Hello from Java".getBytes("UTF-8"))));
        } finally {
            producer.shutdown();
        }
    }
}
"""

JAVA_CONSUMER = """\
%(imports)simport org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
%(imports_of_consumer)simport org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class Consumer {
    public static void main(String[] arguments) throws Exception {
%(trust)s        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("%(group)s"%(hook)s%(allocate)s);
        consumer.setNamesrvAddr("%(namesrv)s");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
%(encrypt)s        consumer.subscribe("%(topic)s", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("Waiting for messages; Ctrl-C ends it.");
    }
}
"""

JAVA_IMPORTS = """\
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
"""

JAVA_HOOK = """,
            new AclClientRPCHook(new SessionCredentials("%(user)s", System.getenv("%(secret)s")))"""

JAVA_ALLOCATE_IMPORT = "import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;\n"
JAVA_ALLOCATE = """,
            new AllocateMessageQueueAveragely()"""

#: Set before the client's classes are loaded. Without the first two it would encrypt, and trust whoever answers.
JAVA_TRUST = """\
        System.setProperty("tls.test.mode.enable", "false");
        System.setProperty("tls.client.authServer", "true");
        System.setProperty("tls.client.trustCertPath", "%(certificate)s");
"""

GO_MOD = """\
module hello

go 1.19

require github.com/apache/rocketmq-client-go/v2 v2.1.2
"""

GO_PRODUCER = """\
package main

import (
	"context"
	"fmt"
%(imports)s
	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{"%(namesrv)s"}),
%(credentials)s	)
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

GO_CONSUMER = """\
package main

import (
	"context"
	"fmt"
%(imports)s
	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func main() {
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName("%(group)s"),
		consumer.WithNameServer([]string{"%(namesrv)s"}),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
%(credentials)s	)
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

GO_IMPORTS = """\
	"os"
"""

GO_CREDENTIALS = """\
		%(kind)s.WithCredentials(primitive.Credentials{AccessKey: "%(user)s", SecretKey: os.Getenv("%(secret)s")}),
"""

PYTHON_PRODUCER = """\
%(imports)s
with Client(%(client)s) as client:
    print(client.producer("hello-producer").send("%(topic)s", "Hello from Python"))
"""

PYTHON_CONSUMER = """\
%(imports)s
with Client(%(client)s) as client:
    print("Waiting for messages; Ctrl-C ends it.", flush=True)
    for message in client.pull_consumer("%(group)s", start="first").subscribe("%(topic)s"):
        print(message.text, flush=True)
"""

PYTHON_NAMESRV = '"%(namesrv)s"'
PYTHON_CREDENTIALS = 'credentials=Credentials("%(user)s", os.environ["%(secret)s"])'
PYTHON_TLS = 'tls=Tls(ca_file="%(certificate)s")'

CPP_PRODUCER = """\
#include <cstdlib>
#include <iostream>
#include <rocketmq/DefaultMQProducer.h>

int main() {
    rocketmq::DefaultMQProducer producer("hello-producer");
    producer.setNamesrvAddr("%(namesrv)s");
%(credentials)s    producer.start();
    rocketmq::MQMessage message("%(topic)s", "", "Hello from C++");
    std::cout << producer.send(message).toString() << std::endl;
    producer.shutdown();
}
"""

CPP_CONSUMER = """\
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <rocketmq/DefaultMQPushConsumer.h>

class Printer : public rocketmq::MessageListenerConcurrently {
    rocketmq::ConsumeStatus consumeMessage(const std::vector<rocketmq::MQMessageExt>& messages) override {
        for (const auto& message : messages) {
            std::cout << message.getBody() << std::endl;
        }
        return rocketmq::CONSUME_SUCCESS;
    }
};

int main() {
    Printer printer;
    rocketmq::DefaultMQPushConsumer consumer("%(group)s");
    consumer.setNamesrvAddr("%(namesrv)s");
    consumer.setConsumeFromWhere(rocketmq::CONSUME_FROM_FIRST_OFFSET);
%(credentials)s    consumer.subscribe("%(topic)s", "*");
    consumer.registerMessageListener(&printer);
    consumer.start();
    std::cout << "Waiting for messages; Ctrl-C ends it." << std::endl;
    for (;;) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
}
"""

CPP_CREDENTIALS = """\
    %(kind)s.setSessionCredentials("%(user)s", std::getenv("%(secret)s"), "");
"""

CPP_TLS = """\
    %(kind)s.setEnableSsl(true);
    %(kind)s.setSslPropertyFile("tls.properties");
"""

CPP_TLS_FILE = """\
tls.client.trustCertPath=%(certificate)s
"""

BINDING_REQUIREMENTS = """\
rocketmq==0.4.4
"""

BINDING_PRODUCER = """\
%(import)sfrom rocketmq.client import Message, Producer

producer = Producer("hello-producer")
producer.set_namesrv_addr("%(namesrv)s")
%(credentials)sproducer.start()
message = Message("%(topic)s")
message.set_body("Hello from Python")
print(producer.send_sync(message))
producer.shutdown()
"""

BINDING_CONSUMER = """\
%(import)simport time

from rocketmq.client import PushConsumer


def listen(message):
    print(message.body.decode(), flush=True)


consumer = PushConsumer("%(group)s")
consumer.set_namesrv_addr("%(namesrv)s")
%(credentials)sconsumer.subscribe("%(topic)s", listen)
consumer.start()
print("Waiting for messages; Ctrl-C ends it.", flush=True)
while True:
    time.sleep(1)
"""

BINDING_CREDENTIALS = '%(kind)s.set_session_credentials("%(user)s", os.environ["%(secret)s"], "")\n'
