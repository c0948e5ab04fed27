package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var transactional sync.Map // name -> rocketmq.TransactionProducer

// decider is a listener whose answers stand in the messages: the property "local" for the local branch, "check" for
// the broker's questions, as words that are used up in turn, the last one for ever: commit, rollback, unknown or hang
// (for as long as the process lives). Without one it commits. Both are events: "executed" and "checked".
type decider struct {
	name  string
	lock  sync.Mutex
	asked map[string]int
}

func (d *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	event("executed", d.name, map[string]interface{}{"message": map[string]interface{}{
		"body_sha256":    hash(message.Body),
		"transaction_id": message.TransactionId,
		"properties":     message.GetProperties(),
		"at_ms":          time.Now().UnixMilli(),
	}})
	return verdict(message.GetProperty("local"), 1)
}

func (d *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.lock.Lock()
	d.asked[hash(message.Body)]++
	times := d.asked[hash(message.Body)]
	d.lock.Unlock()
	event("checked", d.name, map[string]interface{}{"message": received(message)})
	return verdict(message.GetProperty("check"), times)
}

func verdict(words string, times int) primitive.LocalTransactionState {
	list := strings.Fields(words)
	if len(list) == 0 {
		return primitive.CommitMessageState
	}
	if times > len(list) {
		times = len(list)
	}
	switch word := list[times-1]; word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	case "unknown":
		return primitive.UnknowState
	case "hang":
		select {}
	default:
		panic("a listener does not answer " + word)
	}
}

func startTransactional(args arguments) (interface{}, error) {
	name := args.text("name", "")
	listener := &decider{name: name, asked: map[string]int{}}
	started, err := rocketmq.NewTransactionProducer(listener, producerOptions(args)...)
	if err != nil {
		return nil, err
	}
	transactional.Store(name, started)
	return nil, started.Start()
}

func sendInTransaction(args arguments) (interface{}, error) {
	found, ok := transactional.Load(args.text("name", ""))
	if !ok {
		return nil, fmt.Errorf("no transactional producer %v", args["name"])
	}
	messages, err := args.messages()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	results := make([]interface{}, 0, len(messages))
	for _, message := range messages {
		result, err := found.(rocketmq.TransactionProducer).SendMessageInTransaction(ctx, message)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result.SendResult))
	}
	return map[string]interface{}{"results": results}, nil
}
