package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// load is producers that send without end and write down every acknowledgement as it arrives, one line each: broker,
// queue id, queue offset, message id, SHA-256 of the body, tab-separated; or, with "history" in place of "file", every
// send and how it ended, as tests/rig/history.py has it, of messages that begin with their id.
type load struct {
	producer rocketmq.Producer
	topic    string
	timeout  time.Duration
	history  bool
	group    string
	again    bool
	done     chan struct{}
	workers  sync.WaitGroup

	lock     sync.Mutex // guards what follows
	file     *os.File
	count    int64
	failures map[string]int
	moved    chan struct{} // closed and renewed when count moves
}

var loads sync.Map // name -> *load

func init() {
	commands["load.start"] = startLoad
	commands["load.progress"] = func(args arguments) (interface{}, error) {
		found, _ := loads.Load(args.text("name", ""))
		return found.(*load).progress(args)
	}
	commands["load.stop"] = func(args arguments) (interface{}, error) {
		found, _ := loads.LoadAndDelete(args.text("name", ""))
		return found.(*load).stop()
	}
}

func startLoad(args arguments) (interface{}, error) {
	producer, err := newProducer(args)
	if err != nil {
		return nil, err
	}
	history := args.text("history", "")
	file, err := os.OpenFile(args.text("file", history), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err := producer.Start(); err != nil {
		return nil, err
	}
	l := &load{
		producer: producer,
		topic:    args.text("topic", ""),
		timeout:  time.Duration(args.number("timeout_ms", 3000)) * time.Millisecond,
		history:  history != "",
		group:    args.text("group", ""),
		again:    args.number("retries", 2) > 0,
		done:     make(chan struct{}),
		file:     file,
		failures: map[string]int{},
		moved:    make(chan struct{}),
	}
	loads.Store(args.text("name", ""), l)
	for i := int64(0); i < args.number("threads", 4); i++ {
		l.workers.Add(1)
		go l.run(rand.New(rand.NewSource(args.number("seed", 0)*1000+i)), i)
	}
	return nil, nil
}

func (l *load) run(random *rand.Rand, worker int64) {
	defer l.workers.Done()
	for count := 1; ; count++ {
		select {
		case <-l.done:
			return
		default:
		}
		send := func() error {
			if l.history {
				return l.sendNoted(random, fmt.Sprintf("%st%d", l.group, worker), count)
			}
			if worker == 0 {
				return l.send(random, 5)
			}
			return l.send(random, 1)
		}
		if err := send(); err != nil {
			l.lock.Lock()
			text := err.Error()
			if len(text) > 60 {
				text = text[:60]
			}
			l.failures[text]++
			l.lock.Unlock()
			time.Sleep(20 * time.Millisecond) // a refused connection fails at once
		}
	}
}

func (l *load) send(random *rand.Rand, number int) error {
	messages := make([]*primitive.Message, 0, number)
	hashes := make([]string, 0, number)
	for i := 0; i < number; i++ {
		body := loadBody(random)
		hashes = append(hashes, hash(body))
		messages = append(messages, primitive.NewMessage(l.topic, body))
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	result, err := l.producer.SendSync(ctx, messages...)
	if err != nil {
		return err
	}
	if result.Status != primitive.SendOK {
		return fmt.Errorf("status %d", result.Status)
	}
	lines := strings.Builder{}
	for i := range hashes {
		id := result.MsgID
		if number > 1 {
			id = "-" // the library gives the members of a batch no id
		}
		fmt.Fprintf(&lines, "%s\t%d\t%d\t%s\t%s\n",
			result.MessageQueue.BrokerName, result.MessageQueue.QueueId, result.QueueOffset+int64(i), id, hashes[i])
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, err := l.file.WriteString(lines.String()); err != nil {
		panic(err)
	}
	l.count += int64(number)
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

func (l *load) sendNoted(random *rand.Rand, name string, count int) error {
	time.Sleep(2 * time.Millisecond) // there are others
	id := fmt.Sprintf("%s-%d", name, count)
	body := []byte(id + "|" + strings.Repeat("x", random.Intn(900)))
	line := map[string]interface{}{
		"type": "send", "producer": name, "topic": l.topic, "id": id, "queue": -1, "outcome": "unknown", "offset": -1,
		"again": l.again, "call": float64(time.Now().UnixMicro()) / 1e6,
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	result, err := l.producer.SendSync(ctx, primitive.NewMessage(l.topic, body))
	line["back"] = float64(time.Now().UnixMicro()) / 1e6
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("status %d", result.Status)
	}
	if err == nil {
		line["outcome"], line["queue"], line["offset"] = "ok", result.MessageQueue.QueueId, result.QueueOffset
	}
	text, _ := json.Marshal(line)
	l.lock.Lock()
	defer l.lock.Unlock()
	if _, problem := l.file.Write(append(text, '\n')); problem != nil {
		panic(problem)
	}
	if err == nil {
		l.count++
		close(l.moved)
		l.moved = make(chan struct{})
	}
	return err
}

// loadBody is 10 to 1,500 random bytes; one in twenty 6,000 bytes of text, which the client compresses.
func loadBody(random *rand.Rand) []byte {
	if random.Intn(20) == 0 {
		return []byte(strings.Repeat(fmt.Sprint(random.Int63(), " "), 600))[:6000]
	}
	body := make([]byte, 10+random.Intn(1490))
	random.Read(body)
	return body
}

// progress waits until "more" messages are acknowledged than now (or than "than"), and gives the count.
func (l *load) progress(args arguments) (interface{}, error) {
	timeout := time.After(time.Duration(args.number("timeout_ms", 10_000)) * time.Millisecond)
	l.lock.Lock()
	wanted := args.number("than", l.count) + args.number("more", 0)
	for l.count < wanted {
		moved := l.moved
		l.lock.Unlock()
		select {
		case <-moved:
		case <-timeout:
			l.lock.Lock()
			defer l.lock.Unlock()
			return nil, fmt.Errorf("%d acknowledged, %d awaited; failures %v", l.count, wanted, l.failures)
		}
		l.lock.Lock()
	}
	defer l.lock.Unlock()
	return l.count, nil
}

func (l *load) stop() (interface{}, error) {
	close(l.done)
	ended := make(chan struct{})
	go func() { l.workers.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		return nil, fmt.Errorf("a sender did not end in 20 s")
	}
	if err := l.producer.Shutdown(); err != nil {
		return nil, err
	}
	if err := l.file.Close(); err != nil {
		return nil, err
	}
	return map[string]interface{}{"acknowledged": l.count, "failures": l.failures}, nil
}
