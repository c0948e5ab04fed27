package rocketboxtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"rocketbox/examples/hello/rocketboxtest"
)

func TestAPaidOrderIsBilled(t *testing.T) {
	rlog.SetLogLevel("error")
	box := rocketboxtest.Start(t)
	orders, err := rocketmq.NewProducer(
		producer.WithNameServer(box.NameServer),
		producer.WithGroupName("orders"),
		producer.WithSendMsgTimeout(30*time.Second),
	)
	check(t, err)
	check(t, orders.Start())
	defer orders.Shutdown()
	_, err = orders.SendSync(context.Background(), primitive.NewMessage("orders", []byte("17")))
	check(t, err)

	billed := make(chan string, 1)
	billing, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(box.NameServer),
		consumer.WithGroupName("billing"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(t, err)
	check(t, billing.Subscribe("orders", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				billed <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(t, billing.Start())
	defer billing.Shutdown()
	select {
	case body := <-billed:
		if body != "17" {
			t.Fatalf("the body is %q", body)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
