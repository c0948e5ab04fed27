package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// conduct is what a listener does with a message, as the arguments of its start say: "hold_ms" (0) it takes for it; it
// fails with it "fail" times (0; -1: always), counted by body; "failing" is "later" (the result that says so) or "throw"
// (an error beside it); "next_level" (0) is the delay level it asks for: 0 leaves it to the broker, -1 means the dead
// letters; "suspend_ms" is how long an orderly queue rests after a failure.
type conduct struct {
	lock      sync.Mutex
	failures  map[string]int64
	fail      int64
	hold      time.Duration
	nextLevel int
	suspendMs int
	orderly   bool
	throwing  bool
}

func newConduct(args arguments) *conduct {
	return &conduct{
		failures:  map[string]int64{},
		fail:      args.number("fail", 0),
		hold:      time.Duration(args.number("hold_ms", 0)) * time.Millisecond,
		nextLevel: int(args.number("next_level", 0)),
		suspendMs: int(args.number("suspend_ms", 1000)),
		orderly:   args.flag("orderly"),
		throwing:  args.text("failing", "later") == "throw",
	}
}

func (c *conduct) result(ctx context.Context, messages []*primitive.MessageExt) (consumer.ConsumeResult, error) {
	time.Sleep(c.hold)
	if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
		concurrently.DelayLevelWhenNextConsume = c.nextLevel
	}
	if orderly, ok := primitive.GetOrderlyCtx(ctx); ok {
		orderly.SuspendCurrentQueueTimeMillis = c.suspendMs
	}
	done := true
	for _, message := range messages {
		done = !c.fails(hash(message.Body)) && done
	}
	if done {
		return consumer.ConsumeSuccess, nil
	}
	var err error
	if c.throwing {
		err = errors.New("as the test wants it")
	}
	if c.orderly {
		return consumer.SuspendCurrentQueueAMoment, err
	}
	return consumer.ConsumeRetryLater, err
}

func (c *conduct) fails(body string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.failures[body]++
	return c.fail < 0 || c.failures[body] <= c.fail
}
