package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var repliers sync.Map // name -> rocketmq.PushConsumer

func init() {
	commands["request.ask"] = ask
	commands["reply.start"] = startReplier
	commands["reply.stop"] = func(args arguments) (interface{}, error) {
		found, ok := repliers.LoadAndDelete(args.text("name", ""))
		if !ok {
			return nil, fmt.Errorf("no replier %v", args["name"])
		}
		return nil, found.(rocketmq.PushConsumer).Shutdown()
	}
}

// ask has producer "name" ask "body" of "topic"; "how": sync or async. The reply's body and properties.
func ask(args arguments) (interface{}, error) {
	found, ok := producers.Load(args.text("name", ""))
	if !ok {
		return nil, fmt.Errorf("no producer %v", args["name"])
	}
	asker := found.(rocketmq.Producer)
	timeout := time.Duration(args.number("timeout_ms", 10000)) * time.Millisecond
	question := primitive.NewMessage(args.text("topic", ""), []byte(args.text("body", "")))
	if args.text("how", "sync") == "sync" {
		reply, err := asker.Request(context.Background(), timeout, question)
		if err != nil {
			return nil, err
		}
		return told(reply), nil
	}
	type outcome struct {
		reply *primitive.Message
		err   error
	}
	came := make(chan outcome, 1)
	err := asker.RequestAsync(context.Background(), timeout, func(_ context.Context, reply *primitive.Message, err error) {
		came <- outcome{reply, err}
	}, question)
	if err != nil {
		return nil, err
	}
	select {
	case answer := <-came:
		if answer.err != nil {
			return nil, answer.err
		}
		return told(answer.reply), nil
	case <-time.After(timeout + 10*time.Second):
		return nil, fmt.Errorf("the callback is missing")
	}
}

func told(reply *primitive.Message) map[string]interface{} {
	return map[string]interface{}{"body": string(reply.Body), "properties": reply.GetProperties()}
}

// startReplier replies "reply to ..." by the started producer "producer", "after_ms" later. "empty": with what this
// version's CreateReplyMessage makes, which has no body, whatever it is given.
func startReplier(args arguments) (interface{}, error) {
	name := args.text("name", "")
	found, ok := producers.Load(args.text("producer", ""))
	if !ok {
		return nil, fmt.Errorf("no producer %v", args["producer"])
	}
	replier := found.(rocketmq.Producer)
	push, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(args.namesrv()),
		consumer.WithGroupName(args.text("group", "")),
		consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	reply := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			content := map[string]interface{}{"question": string(message.Body)}
			event("asked", name, map[string]interface{}{"question": string(message.Body)})
			time.Sleep(time.Duration(args.number("after_ms", 0)) * time.Millisecond)
			body := []byte("reply to " + string(message.Body))
			answer, err := consumer.CreateReplyMessage(message, body)
			if err == nil {
				if !args.flag("empty") {
					answer.Body = body
				}
				var result *primitive.SendResult
				if result, err = replier.SendSync(ctx, answer); err == nil {
					content["result"] = sent(result)
				}
			}
			if err != nil {
				content["error"] = describe(err)
			}
			event("replied", name, content)
		}
		return consumer.ConsumeSuccess, nil
	}
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if err := push.Subscribe(args.text("topic", ""), all, reply); err != nil {
		return nil, err
	}
	repliers.Store(name, push)
	return nil, push.Start()
}
