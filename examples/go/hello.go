// Hello sends one message and waits until a consumer has it. The first argument is the name server, 127.0.0.1:9876.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	nameServer := []string{"127.0.0.1:9876"}
	if len(os.Args) > 1 {
		nameServer = os.Args[1:2]
	}
	ctx := context.Background()

	sender, err := rocketmq.NewProducer(producer.WithNameServer(nameServer), producer.WithGroupName("hello-go-producer"))
	check(err)
	check(sender.Start())
	result, err := sender.SendSync(ctx, primitive.NewMessage("HelloGo", []byte("Hello from Go")))
	check(err)
	fmt.Println("sent     ", result.MsgID)

	received := make(chan struct{}, 1)
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(nameServer),
		consumer.WithGroupName("hello-go-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	err = receiver.Subscribe("HelloGo", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println("received ", message.MsgId, "", string(message.Body))
			}
			select {
			case received <- struct{}{}:
			default:
			}
			return consumer.ConsumeSuccess, nil
		})
	check(err)
	check(receiver.Start())

	select {
	case <-received:
		// The client counts a message as consumed when the handler has returned, and commits that when it shuts down.
		time.Sleep(time.Second)
	case <-time.After(30 * time.Second):
		check(fmt.Errorf("no message came back within 30 s"))
	}
	check(receiver.Shutdown())
	check(sender.Shutdown())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
