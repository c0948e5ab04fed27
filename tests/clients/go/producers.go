package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var producers sync.Map // name -> rocketmq.Producer

func init() {
	commands["producer.start"] = startProducer
	commands["producer.stop"] = func(args arguments) (interface{}, error) {
		found, ok := producers.LoadAndDelete(args.text("name", ""))
		if !ok {
			if found, ok := transactional.LoadAndDelete(args.text("name", "")); ok {
				return nil, found.(rocketmq.TransactionProducer).Shutdown()
			}
			return nil, fmt.Errorf("no producer %v", args["name"])
		}
		return nil, found.(rocketmq.Producer).Shutdown()
	}
	commands["producer.send"] = send
	commands["producer.many"] = sendMany
}

func newProducer(args arguments) (rocketmq.Producer, error) {
	return rocketmq.NewProducer(producerOptions(args)...)
}

func producerOptions(args arguments) []producer.Option {
	options := []producer.Option{
		producer.WithNameServer(args.namesrv()),
		producer.WithGroupName(args.text("group", "")),
		producer.WithInstanceName(args.text("name", "")),
		producer.WithRetry(int(args.number("retries", 2))),
		producer.WithVIPChannel(args.flag("vip")),
	}
	if namespace := args.text("namespace", ""); namespace != "" {
		options = append(options, producer.WithNamespace(namespace))
	}
	if signs := args.credentials(); !signs.IsEmpty() {
		options = append(options, producer.WithCredentials(signs))
	}
	if args.flag("trace") {
		options = append(options, producer.WithTrace(args.trace()))
	}
	if args.flag("ordered") {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if args.flag("manual") {
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	return options
}

func startProducer(args arguments) (interface{}, error) {
	if args.flag("transactional") {
		return startTransactional(args)
	}
	started, err := newProducer(args)
	if err != nil {
		return nil, err
	}
	producers.Store(args.text("name", ""), started)
	return nil, started.Start()
}

// send sends "messages" in the order given; "how" is sync, async, oneway, batch, ordered, queue or transaction. The queue selector
// of this library belongs to the producer: start it with "ordered" (by hash) or "manual" (by queue).
func send(args arguments) (interface{}, error) {
	if args.text("how", "") == "transaction" {
		return sendInTransaction(args)
	}
	found, ok := producers.Load(args.text("name", ""))
	if !ok {
		return nil, fmt.Errorf("no producer %v", args["name"])
	}
	producer := found.(rocketmq.Producer)
	messages, err := args.messages()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	results := make([]interface{}, 0, len(messages))
	switch how := args.text("how", "sync"); how {
	case "async":
		return sendAsync(ctx, producer, messages)
	case "batch":
		result, err := producer.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	case "oneway":
		for _, message := range messages {
			if err := producer.SendOneWay(ctx, message); err != nil {
				return nil, err
			}
		}
	case "sync", "ordered", "queue":
		for _, message := range messages {
			if how == "queue" {
				message.Queue = args.queue()
			}
			result, err := producer.SendSync(ctx, message)
			if err != nil {
				return nil, err
			}
			results = append(results, sent(result))
		}
	default:
		return nil, fmt.Errorf("how? %s", how)
	}
	return map[string]interface{}{"results": results}, nil
}

func sendAsync(ctx context.Context, producer rocketmq.Producer, messages []*primitive.Message) (interface{}, error) {
	results := make([]interface{}, len(messages))
	var open sync.WaitGroup
	for i := range messages {
		index := i
		open.Add(1)
		err := producer.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				results[index] = map[string]interface{}{"error": describe(err)}
			} else {
				results[index] = sent(result)
			}
			open.Done()
		}, messages[i])
		if err != nil {
			return nil, err
		}
	}
	all := make(chan struct{})
	go func() { open.Wait(); close(all) }()
	select {
	case <-all:
		return map[string]interface{}{"results": results}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("callbacks are missing after 20 s")
	}
}

// sendMany sends "count" messages of "bytes" zeros, for bench/clients.py; "how" is sync, or async with 256 on their way.
func sendMany(args arguments) (interface{}, error) {
	found, ok := producers.Load(args.text("name", ""))
	if !ok {
		return nil, fmt.Errorf("no producer %v", args["name"])
	}
	producer := found.(rocketmq.Producer)
	window := make(chan struct{}, 256)
	var lock sync.Mutex
	var failure error
	for i := args.number("count", 0); i > 0; i-- {
		message := primitive.NewMessage(args.text("topic", ""), make([]byte, args.number("bytes", 0)))
		if args.text("how", "") == "sync" {
			if _, err := producer.SendSync(context.Background(), message); err != nil {
				return nil, err
			}
			continue
		}
		window <- struct{}{}
		err := producer.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				lock.Lock()
				failure = err
				lock.Unlock()
			}
			<-window
		}, message)
		if err != nil {
			return nil, err
		}
	}
	for i := 0; i < cap(window); i++ {
		window <- struct{}{}
	}
	lock.Lock()
	defer lock.Unlock()
	return nil, failure
}
