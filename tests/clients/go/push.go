package main

import (
	"context"
	"fmt"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var pushConsumers sync.Map // name -> rocketmq.PushConsumer

func init() {
	commands["push.start"] = startPush
	commands["push.stop"] = func(args arguments) (interface{}, error) {
		found, ok := pushConsumers.LoadAndDelete(args.text("name", ""))
		if !ok {
			return nil, fmt.Errorf("no push consumer %v", args["name"])
		}
		return nil, found.(rocketmq.PushConsumer).Shutdown()
	}
}

var fromWhere = map[string]consumer.ConsumeFromWhere{
	"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

// startPush reports every message as a "message" event and every new allocation of queues as "allocated".
func startPush(args arguments) (interface{}, error) {
	name := args.text("name", "")
	options := []consumer.Option{
		consumer.WithNameServer(args.namesrv()),
		consumer.WithGroupName(args.text("group", "")),
		consumer.WithInstance(args.text("instance", name)),
		consumer.WithConsumeFromWhere(fromWhere[args.text("from", "")]),
		consumer.WithConsumerOrder(args.flag("orderly")),
		consumer.WithStrategy(reportingStrategy(name, args.text("allocation", "average"))),
		consumer.WithVIPChannel(args.flag("vip")),
		consumer.WithConsumeGoroutineNums(4),
	}
	if namespace := args.text("namespace", ""); namespace != "" {
		options = append(options, consumer.WithNamespace(namespace))
	}
	if signs := args.credentials(); !signs.IsEmpty() {
		options = append(options, consumer.WithCredentials(signs))
	}
	if most := args.number("max_reconsume", -1); most >= 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(most)))
	}
	if args.flag("trace") {
		options = append(options, consumer.WithTrace(args.trace()))
	}
	if args.text("model", "CLUSTERING") == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if timestamp := args.text("timestamp", ""); timestamp != "" {
		options = append(options, consumer.WithConsumeTimestamp(timestamp))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: args.text("expression", "*")}
	if sql := args.text("sql", ""); sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	conduct := newConduct(args)
	listen := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			event("message", name, map[string]interface{}{"message": received(message)})
		}
		return conduct.result(ctx, messages)
	}
	if err := push.Subscribe(args.text("topic", ""), selector, listen); err != nil {
		return nil, err
	}
	pushConsumers.Store(name, push)
	return nil, push.Start()
}

var rules = map[string]consumer.AllocateStrategy{
	"average":  consumer.AllocateByAveragely,
	"in_turns": consumer.AllocateByAveragelyCircle,
}

// reportingStrategy is one of these rules, saying each new outcome.
func reportingStrategy(name, rule string) consumer.AllocateStrategy {
	var lock sync.Mutex
	last := map[string]string{}
	return func(group, id string, all []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
		mine := rules[rule](group, id, all, ids)
		if len(all) == 0 {
			return mine
		}
		text := fmt.Sprint(queues(mine))
		lock.Lock()
		before, known := last[all[0].Topic]
		last[all[0].Topic] = text
		lock.Unlock()
		if !known || before != text {
			event("allocated", name, map[string]interface{}{
				"topic": all[0].Topic, "queues": queues(mine), "members": len(ids),
			})
		}
		return mine
	}
}
