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

var pullConsumers sync.Map // name -> rocketmq.PullConsumer

func init() {
	commands["pull.start"] = startPull
	commands["pull.stop"] = func(args arguments) (interface{}, error) {
		found, _ := pullConsumers.LoadAndDelete(args.text("name", ""))
		return nil, found.(rocketmq.PullConsumer).Shutdown()
	}
	commands["pull.pull"] = pull
	commands["pull.poll"] = poll
	commands["pull.commit"] = func(args arguments) (interface{}, error) {
		committing, err := pullConsumer(args)
		if err != nil {
			return nil, err
		}
		return nil, committing.PersistOffset(context.Background(), args.text("topic", ""))
	}
}

func startPull(args arguments) (interface{}, error) {
	started, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(args.namesrv()),
		consumer.WithGroupName(args.text("group", "")),
		consumer.WithInstance(args.text("name", "")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithPullBatchSize(32), // without it this library asks for 0 messages
		consumer.WithConsumeMessageBatchMaxSize(32),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: args.text("expression", "*")}
	if err := started.Subscribe(args.text("topic", ""), selector); err != nil {
		return nil, err
	}
	pullConsumers.Store(args.text("name", ""), started)
	return nil, started.Start()
}

func pullConsumer(args arguments) (rocketmq.PullConsumer, error) {
	found, ok := pullConsumers.Load(args.text("name", ""))
	if !ok {
		return nil, fmt.Errorf("no pull consumer %v", args["name"])
	}
	return found.(rocketmq.PullConsumer), nil
}

// pull asks for "max" messages of "queue" from "offset".
func pull(args arguments) (interface{}, error) {
	pulling, err := pullConsumer(args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	result, err := pulling.PullFrom(ctx, args.queue(), args.number("offset", 0), int(args.number("max", 32)))
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{
		"status": map[primitive.PullStatus]string{
			primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG",
			primitive.PullNoMsgMatched: "NO_MATCHED_MSG", primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
			primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
		}[result.Status],
		"next": result.NextBeginOffset, "min": result.MinOffset, "max": result.MaxOffset,
		"messages": receivedAll(result.GetMessageExts()),
	}, nil
}

// poll takes what the rebalanced queues brought within "timeout_ms", and acknowledges it.
func poll(args arguments) (interface{}, error) {
	polling, err := pullConsumer(args)
	if err != nil {
		return nil, err
	}
	request, err := polling.Poll(context.Background(), time.Duration(args.number("timeout_ms", 1000))*time.Millisecond)
	if consumer.IsNoNewMsgError(err) {
		return []interface{}{}, nil
	}
	if err != nil {
		return nil, err
	}
	messages := receivedAll(request.GetMsgList())
	polling.ACK(context.Background(), request, consumer.ConsumeSuccess)
	return messages, nil
}
